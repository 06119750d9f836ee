package shop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Sells items under Redisson's RLock. The argument is the server. It says ready, and then sells
 * each item that it reads until none is left, and says how many it sold.
 */
final class Shop {
    private Shop() {}

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + args[0]);
        RedissonClient client = Redisson.create(config);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String item = in.readLine(); item != null; item = in.readLine()) {
            RLock lock = client.getLock("shop:item:" + item);
            RBucket<String> stock = client.getBucket("stock:" + item, StringCodec.INSTANCE);
            int sold = 0;
            while (sell(lock, stock)) {
                sold++;
            }
            System.out.println(sold);
        }
        client.shutdown();
    }

    private static boolean sell(RLock lock, RBucket<String> stock) throws InterruptedException {
        lock.lock(); // the watchdog renews it
        try {
            int left = Integer.parseInt(stock.get());
            if (left == 0) {
                return false;
            }
            Thread.sleep(1); // as long as an order takes to be written
            stock.set(Integer.toString(left - 1));
            return true;
        } finally {
            lock.unlock();
        }
    }
}
