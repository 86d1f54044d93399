import java.nio.file.*;
import java.util.*;
import java.util.stream.*;

class Objects {
    record Row(int id, String station, int day, int value, String note) {}

    public static void main(String[] arguments) throws Exception {
        var rows = Files.lines(Path.of(System.getenv("INPUT"), "records.csv")).skip(1).map(line -> line.split(","))
            .map(f -> new Row(Integer.parseInt(f[0]), f[1], Integer.parseInt(f[2]), Integer.parseInt(f[3]), f[4])).toList();
        var by = rows.parallelStream().collect(Collectors.groupingBy(Row::station, TreeMap::new, Collectors.toList()));
        by.values().forEach(list -> list.sort(Comparator.comparing(Row::value).thenComparing(Row::id)));
        System.out.println(by.size() + " " + by.firstEntry().getValue().subList(0, 3));
        System.out.println(by.values().stream().mapToLong(l -> l.get(l.size() / 2).value() * 31L + l.get(0).id()).sum());
        var notes = rows.stream().map(Row::note).distinct().sorted().toList();
        System.out.println(notes.size() + " " + notes.get(notes.size() / 2));
    }
}
