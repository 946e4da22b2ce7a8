package io.laketx.spark.procedures;

import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.read.SqlTransaction;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.SimpleProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** What `CALL lake.system.…` runs: its name, what it takes, what its rows look like, and what it does. */
final class LakeProcedure implements SimpleProcedure {
  /** Does it. */
  interface Work {
    List<InternalRow> rows(Arguments given);
  }

  private final String name;
  private final String description;
  private final List<ProcedureParameter> parameters = new ArrayList<>();
  private StructType answer;
  private Work work;

  LakeProcedure(String name, String description) {
    this.name = name;
    this.description = description;
  }

  LakeProcedure takes(String parameter, DataType type, String comment) {
    parameters.add(ProcedureParameter.in(parameter, type).comment(comment).build());
    return this;
  }

  /** `otherwise` is SQL. */
  LakeProcedure mayTake(String parameter, DataType type, String otherwise, String comment) {
    parameters.add(ProcedureParameter.in(parameter, type).defaultValue(otherwise).comment(comment).build());
    return this;
  }

  LakeProcedure takesTable() {
    return takes("table", DataTypes.StringType, "the table, such as 'shop.orders'");
  }

  /** A version, by one of three; see {@link Lake#version}. */
  LakeProcedure mayTakeVersion() {
    return mayTake("version", DataTypes.LongType, "NULL", "the version")
        .mayTake("time", DataTypes.TimestampType, "NULL", "the newest version at that time, instead")
        .mayTake("tag", DataTypes.StringType, "NULL", "the version of that tag, instead");
  }

  LakeProcedure answers(StructType rows) {
    answer = rows;
    return this;
  }

  LakeProcedure answers(String ddl) {
    return answers(SparkInternals.columns(ddl));
  }

  LakeProcedure does(Work found) {
    work = found;
    return this;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public ProcedureParameter[] parameters() {
    return parameters.toArray(ProcedureParameter[]::new);
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    SqlTransaction.refuse("CALL");
    List<String> names = parameters.stream().map(ProcedureParameter::name).toList();
    List<InternalRow> rows = work.rows(new Arguments(names, input));
    return List.<Scan>of(new Answer(answer, rows)).iterator();
  }

  private record Answer(StructType readSchema, List<InternalRow> found) implements LocalScan {
    @Override
    public InternalRow[] rows() {
      return found.toArray(InternalRow[]::new);
    }
  }
}
