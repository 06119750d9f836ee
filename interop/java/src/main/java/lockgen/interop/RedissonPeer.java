package lockgen.interop;

import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's RLock. Arguments: the watchdog's lease in ms, then one server, or the nodes of a Cluster. */
final class RedissonPeer implements Peer {
    private final RedissonClient client;
    private RLock held;
    private Runnable leave;

    private RedissonPeer(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config().setLockWatchdogTimeout(Long.parseLong(args[0]));
        if (args.length == 2) {
            config.useSingleServer().setAddress("redis://" + args[1]).setClientName("redisson");
        } else {
            var cluster = config.useClusterServers().setClientName("redisson");
            for (int i = 1; i < args.length; i++) {
                cluster.addNodeAddress("redis://" + args[i]);
            }
        }
        RedissonClient client = Redisson.create(config);
        Peer.serve(new RedissonPeer(client));
        client.shutdown();
    }

    @Override
    public void lock(String key) {
        RLock lock = client.getLock(key);
        lock.lock();
        held = lock;
    }

    @Override
    public boolean tryLock(String key, long millis) throws InterruptedException {
        RLock lock = client.getLock(key);
        if (!lock.tryLock(millis, TimeUnit.MILLISECONDS)) {
            return false;
        }
        held = lock;
        return true;
    }

    @Override
    public void unlock() {
        held.unlock();
    }

    @Override
    public boolean hold(String kind, String key) throws InterruptedException {
        if (kind.equals("permit")) {
            var semaphore = client.getPermitExpirableSemaphore(key);
            semaphore.trySetPermits(2);
            String permit = semaphore.tryAcquire(1, TimeUnit.SECONDS);
            leave = () -> {
                semaphore.release(permit);
                semaphore.delete();
            };
            return permit != null;
        }
        var both = client.getReadWriteLock(key);
        RLock side = kind.equals("read") ? both.readLock() : both.writeLock();
        leave = side::unlock;
        return side.tryLock(1, TimeUnit.SECONDS);
    }

    @Override
    public void leave() {
        leave.run();
    }
}
