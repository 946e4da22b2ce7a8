package io.laketx.spark.define;

import io.laketx.spark.service.LakeException;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/** A refusal that Spark's ALTER TABLE passes on: it wraps every IllegalArgumentException, which then comes as a page of Java. */
public final class AlterRefused extends AnalysisException {
  private static final long serialVersionUID = 1;

  private AlterRefused(LakeException refusal) {
    super(
        refusal.getMessage(),
        Option.empty(),
        Option.empty(),
        Option.apply(refusal),
        Option.empty(),
        Map$.MODULE$.empty(),
        new QueryContext[0]);
  }

  /** Throws it. Spark's errors are checked ones in Java, and the catalog's method declares another. */
  public static RuntimeException of(LakeException refusal) {
    throw AlterRefused.<RuntimeException>unchecked(new AlterRefused(refusal));
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }
}
