package io.laketx.spark.keys;

import java.io.IOException;

/** A part of a key index that has not the content that was written. */
final class DamagedIndexException extends IOException {
  DamagedIndexException(String path) {
    super(path + " is damaged");
  }

  DamagedIndexException(String path, Throwable cause) {
    super(path + " is damaged", cause);
  }
}
