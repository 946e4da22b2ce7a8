package io.laketx.spark.changes;

import io.laketx.spark.service.LakeException;
import java.util.Locale;

/** What an increment gives of a range; the words are those of Table.changes in Python. */
enum ChangesMode {
  /** What each commit changed. */
  LOG,
  /** The difference between both ends. */
  CHANGES,
  /** Of this the rows that are there at the end. */
  LATEST;

  static ChangesMode of(String text) {
    for (ChangesMode one : values()) {
      if (one.name().equals(text.toUpperCase(Locale.ROOT))) return one;
    }
    throw LakeException.invalid("MODE_INVALID", "the mode of changes is log, changes or latest, not '" + text + "'");
  }
}
