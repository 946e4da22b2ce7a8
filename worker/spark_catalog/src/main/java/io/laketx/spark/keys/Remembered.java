package io.laketx.spark.keys;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.ToLongFunction;

/** What a JVM has read, by its name; the least recently used is forgotten first. */
public final class Remembered<V> {
  private final Map<String, V> known = new LinkedHashMap<>(16, 0.75f, true);
  private final long most;
  private final ToLongFunction<V> size;
  private long held;

  public Remembered(long most, ToLongFunction<V> size) {
    this.most = most;
    this.size = size;
  }

  /** Null: it isn't known. */
  public synchronized V find(String name) {
    return known.get(name);
  }

  public synchronized void keep(String name, V value) {
    long its = size.applyAsLong(value);
    if (its > most) return;
    V before = known.put(name, value);
    held += its - (before == null ? 0 : size.applyAsLong(before));
    for (Iterator<V> oldest = known.values().iterator(); held > most; ) {
      held -= size.applyAsLong(oldest.next());
      oldest.remove();
    }
  }
}
