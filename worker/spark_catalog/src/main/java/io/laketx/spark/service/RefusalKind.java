package io.laketx.spark.service;

/** What a caller does after a refusal. */
public enum RefusalKind {
  /** Fix the request. */
  INVALID,
  /** Stop asking for it. */
  NOT_FOUND,
  /** Pick another name. */
  ALREADY_EXISTS,
  /** Change something first. */
  BLOCKED,
  /** Ask for a newer version. */
  GONE,
  /** Begin again. */
  STALE,
  /** Slow down. */
  EXHAUSTED,
  /** Get rights. */
  DENIED,
  /** Send the same again. */
  UNAVAILABLE,
  /** Call a human. */
  CORRUPT;

  /** Whether a renewal in the background may succeed later; rights and tokens come back, too. */
  public boolean mayPass() {
    return this == UNAVAILABLE || this == EXHAUSTED || this == DENIED;
  }
}
