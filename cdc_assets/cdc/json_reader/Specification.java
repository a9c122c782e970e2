package cdcassets.json;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A JSON list of lists of strings. */
final class Specification {
    private Specification() { }

    static String[][] parse(String text) {
        byte[] bytes = Text.bytes(text);
        Scanner scanner = new Scanner(new Member(new byte[0], 0), 1);
        if (!scanner.read(bytes, 0, bytes.length) || bytes[0] != '[') {
            throw new IllegalArgumentException("no function has this name: " + text);
        }
        String[][] lists = new String[0][];
        scanner.open(bytes, 1, bytes.length - 1);
        while (scanner.place < scanner.end) {
            String[] list = new String[0];
            scanner.place++; // an opening bracket
            while (bytes[scanner.place] != ']') {
                int from = scanner.place + 1;
                scanner.string();
                list = (String[]) Arrays.copyOf(list, list.length + 1);
                list[list.length - 1] = new String(Text.unescaped(bytes, from, scanner.place - 1),
                    StandardCharsets.UTF_8);
                if (bytes[scanner.place] == ',') {
                    scanner.place++;
                }
            }
            scanner.place += 2; // a closing bracket, and a comma
            lists = (String[][]) Arrays.copyOf(lists, lists.length + 1);
            lists[lists.length - 1] = list;
        }
        return lists;
    }
}
