package io.laketx.spark.service;

import java.util.UUID;

/** Ids of pins, requests and transactions: UUIDs of version 7, which begin with the time. */
public final class Ids {
  private Ids() {}

  public static String uuid7() {
    UUID random = UUID.randomUUID();
    long high = (System.currentTimeMillis() << 16) | 0x7000L | (random.getMostSignificantBits() & 0xfffL);
    return new UUID(high, random.getLeastSignificantBits()).toString();
  }
}
