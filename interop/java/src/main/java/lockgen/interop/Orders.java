package lockgen.interop;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** A service on Redisson, as docs/migration.md shows it. */
abstract class Orders {
    private final RedissonClient redisson;

    Orders(RedissonClient redisson) {
        this.redisson = redisson;
    }

    abstract void charge(long order);

    void pay(long order) {
        RLock lock = redisson.getLock("order:" + order);
        lock.lock();
        try {
            charge(order);
        } finally {
            lock.unlock();
        }
    }
}
