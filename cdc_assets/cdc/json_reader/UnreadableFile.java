package cdcassets.json;

import java.io.IOException;

/** A file that can't be read whole: the message is its path, the cause says why. */
public class UnreadableFile extends IOException {
    public UnreadableFile(String path, Throwable why) {
        super(path, why);
    }
}
