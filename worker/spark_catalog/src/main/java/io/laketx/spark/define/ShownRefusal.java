package io.laketx.spark.define;

import io.laketx.spark.service.LakeException;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/** A refusal that Spark passes on where it wraps every other exception: in ALTER TABLE, and where CALL finds a procedure. */
public final class ShownRefusal extends AnalysisException {
  private static final long serialVersionUID = 1;

  private ShownRefusal(LakeException refusal) {
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
    throw ShownRefusal.<RuntimeException>unchecked(new ShownRefusal(refusal));
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }
}
