package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Conflict;
import io.laketx.v1.ConflictRule;
import io.laketx.v1.Operation;
import io.laketx.v1.Table;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What an INSERT does after a lost race: it fails, or commits the same files at the new head. */
final class ConflictPolicy {
  static final int ATTEMPTS_MAX = 8;
  private static final String OPTION = "on_conflict";
  private static final String SETTING = "spark.laketx.on_conflict";
  private static final String PROPERTY = "write.on_conflict";
  private static final Set<String> KNOWN = Set.of("fail", "resubmit", "rerun");
  private static final Set<ConflictRule> OF_METADATA =
      Set.of(ConflictRule.CONFLICT_RULE_METADATA_CHANGED, ConflictRule.CONFLICT_RULE_PROTOCOL_CHANGED);

  private ConflictPolicy() {}

  /** The write's option counts first, then the session's setting, then the table's property. */
  static boolean resubmits(CaseInsensitiveStringMap options, Table meta, Operation operation) {
    String asTable = meta.getPropertiesOrDefault(PROPERTY, "fail");
    String policy = options.getOrDefault(OPTION, ParquetOut.setting(SETTING, asTable));
    if (!KNOWN.contains(policy)) {
      throw LakeException.invalid(
          "POLICY_INVALID", "on_conflict is one of fail, resubmit and rerun, not '" + policy + "'");
    }
    return operation == Operation.OPERATION_INSERT && !policy.equals("fail");
  }

  /** Whether the files fit what the table is now. */
  static boolean mayResubmit(Conflict conflict) {
    return !OF_METADATA.contains(conflict.getRule());
  }

  /** Milliseconds before an attempt; the second is the first that waits. */
  static long pauseMs(int attempt, double share) {
    return (long) (Math.min(5_000, 100L << (attempt - 2)) * share);
  }
}
