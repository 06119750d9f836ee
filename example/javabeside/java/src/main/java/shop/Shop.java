package shop;

import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Sells pieces of an item under Redisson's RLock until none is left. Arguments: server, item. */
final class Shop {
    private Shop() {}

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + args[0]);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock("shop:item:" + args[1]);
        RBucket<String> stock = client.getBucket("stock:" + args[1], StringCodec.INSTANCE);
        stock.get();
        System.out.println("ready");
        System.in.read();
        int sold = 0;
        while (sell(lock, stock)) {
            sold++;
        }
        System.out.println(sold);
        client.shutdown();
    }

    private static boolean sell(RLock lock, RBucket<String> stock) {
        lock.lock(); // the watchdog renews it
        try {
            int left = Integer.parseInt(stock.get());
            if (left == 0) {
                return false;
            }
            stock.set(Integer.toString(left - 1));
            return true;
        } finally {
            lock.unlock();
        }
    }
}
