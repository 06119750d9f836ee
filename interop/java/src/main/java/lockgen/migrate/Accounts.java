package lockgen.migrate;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.cp.lock.FencedLock;

/** A method under Hazelcast's FencedLock, as docs/migration.md shows it. */
abstract class Accounts {
    HazelcastInstance hazelcast;

    abstract void store(long fence, long id);

    void close(long id) {
        FencedLock lock = hazelcast.getCPSubsystem().getLock("account:" + id);
        long fence = lock.lockAndGetFence();
        try {
            store(fence, id);
        } finally {
            lock.unlock();
        }
    }
}
