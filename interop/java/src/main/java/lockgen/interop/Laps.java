package lockgen.interop;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.config.Config;

/**
 * One process of the benchmark's workloads of kinds: threads that acquire and release one lock until the
 * time is over. They warm up first and need no orders, so that the measurement includes no pipe.
 *
 * <p>Arguments: redisson or curator, the server, the lease in ms, readers, reads, permits or fair, the number of
 * threads, the key, how long a section lasts in ms, the number of permits. It prints "ready" and reads "go",
 * when to begin in ms since 1970, and the length in ms. At the end it prints the fields of bench's tally.
 */
final class Laps {
    private static final int WARM_UP = 5_000, DRAIN = 3_000; // ms

    /** Acquires a lock and returns what releases it. */
    interface Entrance {
        AutoCloseable enter(long n) throws Exception;
    }

    interface Library {
        Entrance of(String kind, String key, int permits) throws Exception;
    }

    /** One thread. */
    private static final class Lap {
        long holds, late;
        long[] waits = new long[1024];
        int waited;
        volatile boolean done;

        void run(Entrance lock, int thread, long begin, long end, long section) throws Exception {
            Thread.sleep(Math.max(begin - System.currentTimeMillis(), 0));
            for (long n = thread; System.currentTimeMillis() < end; n++) {
                long called = System.nanoTime();
                try (AutoCloseable held = lock.enter(n)) {
                    long wait = System.nanoTime() - called;
                    if (waited == waits.length) {
                        waits = Arrays.copyOf(waits, 2 * waited);
                    }
                    waits[waited++] = wait;
                    if (System.currentTimeMillis() >= end) {
                        late++;
                        break;
                    }
                    if (section > 0) {
                        Thread.sleep(section);
                    }
                    holds++;
                }
            }
            done = true;
        }
    }

    public static void main(String[] args) throws Exception {
        Library library = args[0].equals("redisson") ? redisson(args[1], args[2]) : curator(args[1], args[2]);
        String kind = args[3], key = args[5];
        int threads = Integer.parseInt(args[4]), permits = Integer.parseInt(args[7]);
        long section = Long.parseLong(args[6]);
        long now = System.currentTimeMillis();
        laps(library.of(kind, key + ".warm", permits), threads, now, now + WARM_UP, section);
        System.out.println("ready");
        String[] go = new BufferedReader(new InputStreamReader(System.in)).readLine().split(" ");
        long begin = Long.parseLong(go[1]), end = begin + Long.parseLong(go[2]);
        long used = cpu();
        Lap[] laps = laps(library.of(kind, key, permits), threads, begin, end, section);
        used = cpu() - used;
        print(laps, used);
        System.exit(0);
    }

    private static Lap[] laps(Entrance lock, int threads, long begin, long end, long section) throws Exception {
        Lap[] laps = new Lap[threads];
        var left = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            int thread = i;
            Lap lap = laps[i] = new Lap();
            var runner = new Thread(() -> {
                try {
                    lap.run(lock, thread, begin, end, section);
                } catch (Exception e) {
                    System.err.println(e);
                }
                left.countDown();
            });
            runner.setDaemon(true);
            runner.start();
        }
        left.await(end + DRAIN - System.currentTimeMillis(), TimeUnit.MILLISECONDS);
        return laps;
    }

    private static void print(Lap[] laps, long used) {
        var holds = new StringBuilder();
        var waits = new StringBuilder();
        long late = 0, stuck = 0;
        for (Lap lap : laps) {
            holds.append(holds.isEmpty() ? "" : ",").append(lap.holds);
            late += lap.late;
            stuck += lap.done ? 0 : 1;
            for (int i = 0; i < lap.waited; i++) {
                waits.append(waits.isEmpty() ? "" : ",").append(lap.waits[i]);
            }
        }
        System.out.println("{\"Holds\":[" + holds + "],\"Late\":" + late + ",\"Stuck\":" + stuck
                + ",\"CPU\":" + used + ",\"Waits\":[" + waits + "]}");
    }

    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** One section in twenty writes. */
    private static boolean writes(String kind, long n) {
        return kind.equals("reads") && n % 20 == 0;
    }

    private static Library redisson(String server, String lease) {
        long ttl = Long.parseLong(lease);
        var config = new Config().setLockWatchdogTimeout(ttl);
        config.useSingleServer().setAddress("redis://" + server);
        var client = Redisson.create(config);
        return (kind, key, permits) -> {
            switch (kind) {
                case "readers", "reads":
                    var both = client.getReadWriteLock(key);
                    return n -> {
                        var lock = writes(kind, n) ? both.writeLock() : both.readLock();
                        lock.lock();
                        return lock::unlock;
                    };
                case "permits":
                    var semaphore = client.getPermitExpirableSemaphore(key);
                    semaphore.trySetPermits(permits);
                    return n -> {
                        String permit = semaphore.acquire(ttl, TimeUnit.MILLISECONDS);
                        return () -> semaphore.release(permit);
                    };
                default:
                    var fair = client.getFairLock(key);
                    return n -> {
                        fair.lock();
                        return fair::unlock;
                    };
            }
        };
    }

    private static Library curator(String server, String session) throws Exception {
        var client = CuratorFrameworkFactory.newClient(server, Integer.parseInt(session), 5000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        return (kind, key, permits) -> {
            String path = "/curator/" + key;
            switch (kind) {
                case "readers", "reads":
                    var both = new InterProcessReadWriteLock(client, path);
                    return n -> {
                        InterProcessLock lock = writes(kind, n) ? both.writeLock() : both.readLock();
                        lock.acquire();
                        return lock::release;
                    };
                case "permits":
                    var semaphore = new InterProcessSemaphoreV2(client, path, permits);
                    return n -> {
                        var permit = semaphore.acquire();
                        return () -> semaphore.returnLease(permit);
                    };
                default:
                    var mutex = new InterProcessMutex(client, path);
                    return n -> {
                        mutex.acquire();
                        return mutex::release;
                    };
            }
        };
    }
}
