package cdcassets.json;

import java.util.Arrays;

/** A wanted member of a document: its name, its number among all, and the wanted ones in it. */
final class Member {
    final int number;
    boolean isCounted, isListed; // its own members: how many there are, their names
    private final byte[] name;
    private Member[] children = new Member[0];
    private long lengths; // of the children's names, a bit each: most names are told apart by it
    private int likely; // the child that is asked for next, where objects repeat their order

    Member(byte[] name, int number) {
        this.name = name;
        this.number = number;
    }

    /** Whether its own members are looked at: it has wanted ones, or something is asked of all. */
    boolean isOpened() {
        return children.length > 0 || isCounted || isListed;
    }

    boolean hasChildren() {
        return children.length > 0;
    }

    void add(Member child) {
        children = (Member[]) Arrays.copyOf(children, children.length + 1);
        children[children.length - 1] = child;
        lengths |= 1L << child.name.length;
    }

    /** The wanted member of this name; null for any other. `isOdd`: it has escapes. */
    Member child(byte[] bytes, int from, int to, boolean isOdd) {
        if (children.length == 0) {
            return null;
        }
        byte[] text = bytes;
        int first = from, last = to;
        if (isOdd) {
            text = Text.unescaped(bytes, from, to);
            first = 0;
            last = text.length;
        }
        if ((lengths & 1L << last - first) == 0) {
            return null;
        }
        for (int i = 0; i < children.length; i++) {
            int at = likely + i < children.length ? likely + i : likely + i - children.length;
            byte[] own = children[at].name;
            boolean isSame = own.length == last - first
                && Arrays.equals(text, first, last, own, 0, own.length);
            if (isSame) {
                likely = at + 1 < children.length ? at + 1 : 0;
                return children[at];
            }
        }
        return null;
    }
}
