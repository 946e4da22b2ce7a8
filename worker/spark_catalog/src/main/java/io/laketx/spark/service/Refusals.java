package io.laketx.spark.service;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.laketx.v1.ErrorKind;
import java.security.cert.CertificateException;
import java.util.HashMap;
import java.util.Map;
import javax.net.ssl.SSLPeerUnverifiedException;

/** Refusals on the wire: what the service says in the trailers of a call, and the same for who asks how a write ended. */
public final class Refusals {
  static final String TLS_FAILED = "TLS_FAILED";
  private static final String DOMAIN = "laketx";
  private static final String OWN_DOMAIN = "laketx.spark";
  private static final String KIND = "kind";
  private static final String KINDS = "ERROR_KIND_"; // left out on the wire
  private static final String ERROR_INFO = "/google.rpc.ErrorInfo";
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private Refusals() {}

  /** Without details of ours the error is the transport's: its reason is `RPC_` and the code's name. */
  static LakeException of(StatusRuntimeException error) {
    Status status = error.getStatus();
    ErrorKind kind = kindOf(status.getCode());
    com.google.rpc.Status details = statusOf(error);
    LakeException found = details == null ? null : decoded(details, kind, error);
    if (found != null) return found;
    for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
      if (cause instanceof CertificateException || cause instanceof SSLPeerUnverifiedException) {
        String said = "its certificate is not trusted: " + cause.getMessage();
        return new LakeException(ErrorKind.ERROR_KIND_UNAVAILABLE, TLS_FAILED, said, Map.of(), error);
      }
    }
    String message = status.getDescription() == null ? "" : status.getDescription();
    if (status.getCause() != null) message += (message.isEmpty() ? "" : ": ") + status.getCause().getMessage();
    return new LakeException(kind, "RPC_" + status.getCode(), message, Map.of(), error);
  }

  /** The refusal of one call of a session. */
  static LakeException of(com.google.rpc.Status status) {
    Status.Code code = Status.fromCodeValue(status.getCode()).getCode();
    LakeException found = decoded(status, kindOf(code), null);
    return found != null ? found : new LakeException(kindOf(code), "RPC_" + code, status.getMessage(), Map.of());
  }

  /** The service's own words in the trailers; null where it had none. */
  static com.google.rpc.Status statusOf(StatusRuntimeException error) {
    byte[] details = error.getTrailers() == null ? null : error.getTrailers().get(DETAILS);
    if (details == null) return null;
    try {
      return com.google.rpc.Status.parseFrom(details);
    } catch (InvalidProtocolBufferException unreadable) {
      error.addSuppressed(unreadable);
      return null;
    }
  }

  /** A refusal as the service writes its own. */
  public static com.google.rpc.Status status(LakeException refusal) {
    ErrorInfo info =
        ErrorInfo.newBuilder()
            .setDomain(refusal.isOwn() ? OWN_DOMAIN : DOMAIN)
            .setReason(refusal.reason())
            .putAllMetadata(refusal.facts())
            .putMetadata(KIND, refusal.kind().name().substring(KINDS.length()))
            .build();
    return com.google.rpc.Status.newBuilder()
        .setCode(Status.Code.UNKNOWN.value())
        .setMessage(refusal.message())
        .addDetails(Any.newBuilder().setTypeUrl("type.googleapis.com" + ERROR_INFO).setValue(info.toByteString()))
        .build();
  }

  private static LakeException decoded(com.google.rpc.Status status, ErrorKind byCode, Throwable cause) {
    for (Any detail : status.getDetailsList()) {
      if (!detail.getTypeUrl().endsWith(ERROR_INFO)) continue;
      ErrorInfo info = infoOf(detail);
      if (info == null || !info.getDomain().equals(DOMAIN)) continue;
      Map<String, String> facts = new HashMap<>(info.getMetadataMap());
      String named = facts.remove(KIND);
      String prefix = info.getReason() + ": ";
      String message = status.getMessage();
      if (message.startsWith(prefix)) message = message.substring(prefix.length());
      return new LakeException(named(named, byCode), info.getReason(), message, facts, cause);
    }
    return null;
  }

  private static ErrorInfo infoOf(Any detail) {
    try {
      return ErrorInfo.parseFrom(detail.getValue());
    } catch (InvalidProtocolBufferException unreadable) {
      return null;
    }
  }

  private static ErrorKind named(String name, ErrorKind otherwise) {
    for (ErrorKind one : ErrorKind.values()) {
      if (one.name().equals(KINDS + name)) return one;
    }
    return otherwise;
  }

  /** Codes that say nothing about the request count as UNAVAILABLE: whether it arrived is not known. */
  private static ErrorKind kindOf(Status.Code code) {
    return switch (code) {
      case INVALID_ARGUMENT -> ErrorKind.ERROR_KIND_INVALID;
      case NOT_FOUND -> ErrorKind.ERROR_KIND_NOT_FOUND;
      case ALREADY_EXISTS -> ErrorKind.ERROR_KIND_ALREADY_EXISTS;
      case FAILED_PRECONDITION, UNIMPLEMENTED -> ErrorKind.ERROR_KIND_BLOCKED;
      case OUT_OF_RANGE -> ErrorKind.ERROR_KIND_GONE;
      case ABORTED -> ErrorKind.ERROR_KIND_STALE;
      case RESOURCE_EXHAUSTED -> ErrorKind.ERROR_KIND_EXHAUSTED;
      case PERMISSION_DENIED, UNAUTHENTICATED -> ErrorKind.ERROR_KIND_DENIED;
      case DATA_LOSS -> ErrorKind.ERROR_KIND_CORRUPT;
      default -> ErrorKind.ERROR_KIND_UNAVAILABLE;
    };
  }
}
