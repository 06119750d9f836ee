package lockgen.interop;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex. Arguments: the session's timeout in ms, then the server. */
final class CuratorPeer implements Peer {
    private static final String ROOT = "/lockgen/"; // zklock.DefaultRoot

    private final CuratorFramework client;
    private InterProcessMutex held;
    private AutoCloseable leave;

    private CuratorPeer(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        var retry = new ExponentialBackoffRetry(100, 5);
        var client = CuratorFrameworkFactory.newClient(args[1], Integer.parseInt(args[0]), 5000, retry);
        client.start();
        client.blockUntilConnected();
        Peer.serve(new CuratorPeer(client));
        client.close();
    }

    /** The name of the key's directory. It escapes sequences that zklock would otherwise take for its own escapes. */
    private static String node(String key) {
        return ROOT + key.replaceAll("%(?=[0189A-F][0-9A-F]|2[5EF]|7[AF])", "%25");
    }

    @Override
    public void lock(String key) throws Exception {
        var lock = new InterProcessMutex(client, node(key));
        lock.acquire();
        held = lock;
    }

    @Override
    public boolean tryLock(String key, long millis) throws Exception {
        var lock = new InterProcessMutex(client, node(key));
        if (!lock.acquire(millis, TimeUnit.MILLISECONDS)) {
            return false;
        }
        held = lock;
        return true;
    }

    @Override
    public void unlock() throws Exception {
        held.release();
    }

    @Override
    public boolean hold(String kind, String key) throws Exception {
        if (kind.equals("permit")) {
            var semaphore = new InterProcessSemaphoreV2(client, node(key), 2);
            var lease = semaphore.acquire(1, TimeUnit.SECONDS);
            leave = () -> semaphore.returnLease(lease);
            return lease != null;
        }
        var both = new InterProcessReadWriteLock(client, node(key));
        InterProcessMutex side = kind.equals("read") ? both.readLock() : both.writeLock();
        leave = side::release;
        return side.acquire(1, TimeUnit.SECONDS);
    }

    @Override
    public void leave() throws Exception {
        leave.close();
    }
}
