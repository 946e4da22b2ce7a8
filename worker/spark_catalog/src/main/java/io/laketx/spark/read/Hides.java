package io.laketx.spark.read;

import io.laketx.v1.RowOp;
import java.util.function.Consumer;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.roaringbitmap.RoaringBitmap;
import org.roaringbitmap.RoaringBitmapWriter;

/** Which rows of a batch are shown. */
interface Hides {
  int TOMBSTONE = RowOp.ROW_OP_TOMBSTONE_VALUE; // in the column _op of delta files

  /** Writes the places of the rows that are shown, and says how many they are. */
  int shown(ColumnarBatch batch, int[] rows);

  /** The file was read to its end. */
  default void ended() {}

  /** Rows at positions of the file, a bit each. */
  static Hides positions(long[] words, int indexAt) {
    return (batch, rows) -> {
      ColumnVector index = batch.column(indexAt);
      int count = batch.numRows();
      int shown = 0;
      for (int row = 0; row < count; row++) {
        long position = index.getLong(row);
        int word = (int) (position >> 6);
        rows[shown] = row;
        shown += word < words.length ? 1 - (int) ((words[word] >>> position) & 1) : 1;
      }
      return shown;
    };
  }

  /** Rows by their ids: the file's own, where it has one, or else the first one's and the position. */
  static Hides ids(RowIds hidden, int ownAt, int indexAt, long first) {
    return (batch, rows) -> {
      ColumnVector own = batch.column(ownAt);
      ColumnVector index = batch.column(indexAt);
      int count = batch.numRows();
      int shown = 0;
      for (int row = 0; row < count; row++) {
        long id = own.isNullAt(row) ? first + index.getLong(row) : own.getLong(row);
        if (!hidden.contains(id)) rows[shown++] = row;
      }
      return shown;
    };
  }

  /** Tombstones. */
  static Hides tombstones(int opAt) {
    return (batch, rows) -> {
      ColumnVector op = batch.column(opAt);
      int count = batch.numRows();
      int shown = 0;
      for (int row = 0; row < count; row++) {
        if (op.isNullAt(row) || op.getInt(row) != TOMBSTONE) rows[shown++] = row;
      }
      return shown;
    };
  }

  /** Rows whose keys newer files have, and tombstones. `found` takes the positions of them all, unless it is null. */
  static Hides keys(KeyTable newer, int[] keysAt, int opAt, Consumer<RoaringBitmap> found) {
    ColumnVector[] keys = new ColumnVector[keysAt.length];
    RoaringBitmapWriter<RoaringBitmap> hidden = RoaringBitmapWriter.writer().get();
    return new Hides() {
      private int position;

      @Override
      public int shown(ColumnarBatch batch, int[] rows) {
        for (int at = 0; at < keys.length; at++) keys[at] = batch.column(keysAt[at]);
        ColumnVector op = opAt < 0 ? null : batch.column(opAt);
        int count = batch.numRows();
        int shown = 0;
        newer.turnTo(keys);
        for (int row = 0; row < count; row++, position++) {
          boolean isGone = op != null && !op.isNullAt(row) && op.getInt(row) == TOMBSTONE;
          if (!isGone && !newer.contains(row)) rows[shown++] = row;
          else if (found != null) hidden.add(position);
        }
        return shown;
      }

      @Override
      public void ended() {
        if (found != null) found.accept(hidden.get());
      }
    };
  }
}
