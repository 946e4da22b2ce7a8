package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Conflict;
import io.laketx.v1.ErrorKind;
import java.util.Map;

/** A lost race, with what the service said of it. */
final class LostRaceException extends LakeException {
  static final String REASON = "LOST_RACE";
  private static final long serialVersionUID = 1;

  private final Conflict conflict;

  LostRaceException(String text, Conflict conflict) {
    super(ErrorKind.ERROR_KIND_STALE, REASON, text, Map.of());
    this.conflict = conflict;
  }

  Conflict conflict() {
    return conflict;
  }
}
