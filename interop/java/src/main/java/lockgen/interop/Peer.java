package lockgen.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** A client of an engine that executes the orders on its standard input, one lock at a time. */
interface Peer {
    String PREFIX = "interop:";

    void lock(String key) throws Exception;

    boolean tryLock(String key, long millis) throws Exception;

    void unlock() throws Exception;

    /** Acquires, within a second, a lock that is not a mutex: "read", "write", or one "permit" of two. Returns whether it succeeded. */
    boolean hold(String kind, String key) throws Exception;

    /** Releases the lock that hold acquired. */
    void leave() throws Exception;

    /**
     * Answers each line on standard output until the input ends:
     *
     * <pre>
     * lock VALUE            locked
     * trylock MILLIS VALUE  locked or held
     * unlock                unlocked
     * hold KIND VALUE       locked or held, for a lock that is not a mutex
     * leave                 unlocked
     * encode VALUE          the value as encoded in a key
     * </pre>
     *
     * or "error" and the reason. A value is the rest of its line; PREFIX and the encoded value are the key.
     */
    static void serve(Peer peer) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println("ready");
        for (String line; (line = in.readLine()) != null; ) {
            try {
                out.println(answer(peer, line));
            } catch (Exception e) {
                out.println("error " + e);
            }
        }
    }

    private static String answer(Peer peer, String line) throws Exception {
        String[] words = line.split(" ", 2);
        switch (words[0]) {
            case "lock":
                peer.lock(PREFIX + Key.encode(words[1]));
                return "locked";
            case "trylock":
                String[] rest = words[1].split(" ", 2);
                return peer.tryLock(PREFIX + Key.encode(rest[1]), Long.parseLong(rest[0])) ? "locked" : "held";
            case "unlock":
                peer.unlock();
                return "unlocked";
            case "hold":
                String[] what = words[1].split(" ", 2);
                return peer.hold(what[0], PREFIX + Key.encode(what[1])) ? "locked" : "held";
            case "leave":
                peer.leave();
                return "unlocked";
            case "encode":
                return Key.encode(words[1]);
            default:
                throw new IllegalArgumentException(line);
        }
    }
}
