package io.laketx.spark.write;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * What a task tells the driver: the files that it wrote, the rows that it hides of each file, the keys that came into
 * another partition, the partitions in which keys of an overwrite live, or why the statement must be refused. A refusal comes this way so that it reaches people as a sentence, and no task tries again in vain.
 */
record Told(
    List<Written> files,
    Map<String, byte[]> hidden,
    List<Moves.Landed> landed,
    List<Elsewhere> elsewhere,
    Refused refused)
    implements WriterCommitMessage {

  /** Of rows that come in alone. */
  static Told of(List<Written> files, Refused refused) {
    return new Told(files, Map.of(), List.of(), List.of(), refused);
  }

  /** A file's entry, and the hashes of its keys where they are asked for; empty where there are too many. */
  record Written(byte[] file, long[] hashes) implements java.io.Serializable {}

  /** A partition in which a key lives that is written to another one, and such a row as people write it. */
  record Elsewhere(byte[] partition, String row) implements java.io.Serializable {}

  record Refused(String reason, String message) implements java.io.Serializable {}
}
