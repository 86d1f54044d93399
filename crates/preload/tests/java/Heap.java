import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Fills MiB of arrays with noise, walks them twice, makes garbage, and says a sum that does not depend on memory. */
public class Heap {
    public static void main(String[] arguments) {
        int mebibytes = Integer.parseInt(arguments[0]);
        Random random = new Random(1);
        List<byte[]> arrays = new ArrayList<>();
        for (int n = 0; n < mebibytes * 16; n++) {
            byte[] array = new byte[1 << 16];
            random.nextBytes(array);
            arrays.add(array);
        }
        long sum = 0;
        for (int round = 0; round < 2; round++) {
            for (byte[] array : arrays) {
                byte[] copy = array.clone();
                for (int at = 0; at < copy.length; at += 997) {
                    sum = sum * 31 + copy[at];
                }
            }
        }
        System.out.println(sum);
    }
}
