package io.laketx.spark.define;

import io.laketx.spark.WireTypes;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.AddColumn;
import io.laketx.v1.Alteration;
import io.laketx.v1.ColumnPlace;
import io.laketx.v1.CommentColumn;
import io.laketx.v1.DefaultColumn;
import io.laketx.v1.DropColumn;
import io.laketx.v1.MoveColumn;
import io.laketx.v1.RelaxColumn;
import io.laketx.v1.RenameColumn;
import io.laketx.v1.SchemaChange;
import io.laketx.v1.WidenColumn;
import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;

/** The changes of an ALTER TABLE, as the service takes them: all in one commit. */
public final class Alterations {
  private Alterations() {}

  public static Alteration of(TableChange... changes) {
    Alteration.Builder found = Alteration.newBuilder();
    for (TableChange one : changes) {
      if (one instanceof TableChange.SetProperty set) set(found, set.property(), set.value());
      else if (one instanceof TableChange.RemoveProperty gone) remove(found, gone.property());
      else if (one instanceof TableChange.ColumnChange column) found.addSchemaChanges(change(column));
      else if (one instanceof TableChange.AddConstraint added) throw NewTables.onlyKeys(added.constraint().toDDL());
      else if (one instanceof TableChange.DropConstraint) throw NewTables.onlyKeys("DROP CONSTRAINT");
      else if (one instanceof TableChange.ClusterBy) throw notByClusterBy();
      else throw notKnown(one);
    }
    return found.build();
  }

  private static void set(Alteration.Builder to, String name, String value) {
    switch (name) {
      case TableCatalog.PROP_COMMENT -> to.setComment(value);
      case NewTables.PROFILE -> to.setProfile(value);
      case NewTables.BUCKETS -> throw bucketsAreFixed();
      default -> to.putSetProperties(name, value);
    }
  }

  private static void remove(Alteration.Builder from, String name) {
    switch (name) {
      case TableCatalog.PROP_COMMENT -> from.setComment("");
      case NewTables.PROFILE -> throw LakeException.invalid(
          "PROFILE_INVALID", "every table has a profile: set another one");
      case NewTables.BUCKETS -> throw bucketsAreFixed();
      default -> from.addRemoveProperties(name);
    }
  }

  private static SchemaChange change(TableChange.ColumnChange one) {
    String path = path(one.fieldNames());
    SchemaChange.Builder found = SchemaChange.newBuilder();
    if (one instanceof TableChange.AddColumn added) return found.setAdd(added(path, added)).build();
    if (one instanceof TableChange.DeleteColumn) return found.setDrop(DropColumn.newBuilder().setPath(path)).build();
    if (one instanceof TableChange.RenameColumn renamed) {
      return found.setRename(RenameColumn.newBuilder().setPath(path).setName(renamed.newName())).build();
    }
    if (one instanceof TableChange.UpdateColumnPosition moved) {
      return found.setMove(MoveColumn.newBuilder().setPath(path).setPlace(place(moved.position()))).build();
    }
    if (one instanceof TableChange.UpdateColumnType widened) {
      String type = SparkTypes.word(widened.newDataType());
      return found.setWiden(WidenColumn.newBuilder().setPath(path).setType(type)).build();
    }
    if (one instanceof TableChange.UpdateColumnNullability relaxed && relaxed.nullable()) {
      return found.setRelax(RelaxColumn.newBuilder().setPath(path)).build();
    }
    if (one instanceof TableChange.UpdateColumnNullability) {
      throw LakeException.invalid(
          "COLUMN_NULLABLE", path + " may have NULLs: a column that takes none is so from CREATE TABLE on");
    }
    if (one instanceof TableChange.UpdateColumnComment noted) {
      return found.setComment(CommentColumn.newBuilder().setPath(path).setComment(noted.newComment())).build();
    }
    if (one instanceof TableChange.UpdateColumnDefaultValue set) {
      String sql = set.newCurrentDefault() == null ? "" : set.newCurrentDefault().getSql();
      return found.setDefault(DefaultColumn.newBuilder().setPath(path).setDefaultSql(sql)).build();
    }
    throw notKnown(one);
  }

  private static AddColumn added(String path, TableChange.AddColumn one) {
    if (!one.isNullable()) {
      throw LakeException.invalid(
          "COLUMN_NOT_NULLABLE", "rows that are there have no " + path + ": add it without NOT NULL");
    }
    if (one.defaultValue() != null) {
      throw LakeException.invalid(
          "DEFAULT_NOT_SUPPORTED",
          "rows that are there have no " + path + ": add it, then ALTER COLUMN " + path + " SET DEFAULT for new rows");
    }
    AddColumn.Builder found = AddColumn.newBuilder().setPath(path).setType(SparkTypes.word(one.dataType()));
    if (one.comment() != null) found.setComment(one.comment());
    if (one.position() != null) found.setPlace(place(one.position()));
    return found.build();
  }

  private static ColumnPlace place(TableChange.ColumnPosition at) {
    ColumnPlace.Builder found = ColumnPlace.newBuilder();
    if (at instanceof TableChange.After behind) found.setAfter(WireTypes.below("", behind.column()));
    return found.build();
  }

  private static String path(String[] names) {
    return Arrays.stream(names).reduce("", WireTypes::below);
  }

  private static LakeException bucketsAreFixed() {
    return LakeException.invalid(
        "BUCKETS_INVALID", "the number of buckets never changes: create a table with another one, and copy the rows");
  }

  private static LakeException notByClusterBy() {
    return LakeException.invalid(
        "CLUSTER_BY_NOT_SUPPORTED",
        "set the property compaction.cluster.order, such as 'sort(day)', or CALL system.compact with sort_by");
  }

  private static LakeException notKnown(TableChange one) {
    String what = one.getClass().getSimpleName();
    return LakeException.invalid("ALTERATION_INVALID", "a table can't be altered in this way (" + what + ")");
  }
}
