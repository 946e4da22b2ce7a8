package io.laketx.spark.service;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import javax.net.SocketFactory;

/**
 * A socket of the file system with the face of a TCP socket, for a client that knows no other.
 *
 * <p>The streams are written out here: those of `java.nio.channels.Channels` take one lock for both directions, so that
 * a reader that waits holds up every writer.
 */
final class UnixSocket extends Socket {
  private final SocketChannel channel;

  private UnixSocket(Path path) throws IOException {
    channel = SocketChannel.open(UnixDomainSocketAddress.of(path));
  }

  /** Every socket that it makes leads to the same path. */
  static SocketFactory factory(Path path) {
    return new SocketFactory() {
      @Override
      public Socket createSocket() throws IOException {
        return new UnixSocket(path);
      }

      @Override
      public Socket createSocket(String host, int port) throws IOException {
        return createSocket();
      }

      @Override
      public Socket createSocket(String host, int port, InetAddress from, int fromPort) throws IOException {
        return createSocket();
      }

      @Override
      public Socket createSocket(InetAddress host, int port) throws IOException {
        return createSocket();
      }

      @Override
      public Socket createSocket(InetAddress host, int port, InetAddress from, int fromPort) throws IOException {
        return createSocket();
      }
    };
  }

  @Override
  public InputStream getInputStream() {
    return new InputStream() {
      @Override
      public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
      }

      @Override
      public int read(byte[] into, int from, int length) throws IOException {
        return length == 0 ? 0 : channel.read(ByteBuffer.wrap(into, from, length));
      }

      @Override
      public void close() throws IOException {
        UnixSocket.this.close();
      }
    };
  }

  @Override
  public OutputStream getOutputStream() {
    return new OutputStream() {
      @Override
      public void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
      }

      @Override
      public void write(byte[] bytes, int from, int length) throws IOException {
        ByteBuffer left = ByteBuffer.wrap(bytes, from, length);
        while (left.hasRemaining()) channel.write(left);
      }

      @Override
      public void close() throws IOException {
        UnixSocket.this.close();
      }
    };
  }

  @Override
  public void connect(SocketAddress address) {}

  @Override
  public void connect(SocketAddress address, int timeout) {}

  @Override
  public void close() throws IOException {
    channel.close();
  }

  @Override
  public void shutdownInput() throws IOException {
    channel.shutdownInput();
  }

  @Override
  public void shutdownOutput() throws IOException {
    channel.shutdownOutput();
  }

  @Override
  public boolean isConnected() {
    return channel.isConnected();
  }

  @Override
  public boolean isBound() {
    return true;
  }

  @Override
  public boolean isClosed() {
    return !channel.isOpen();
  }

  @Override
  public InetAddress getInetAddress() {
    return InetAddress.getLoopbackAddress();
  }

  @Override
  public SocketAddress getRemoteSocketAddress() {
    return new InetSocketAddress(getInetAddress(), 0);
  }

  @Override
  public SocketAddress getLocalSocketAddress() {
    return getRemoteSocketAddress();
  }

  @Override
  public void setTcpNoDelay(boolean on) {}

  @Override
  public void setKeepAlive(boolean on) {}

  @Override
  public void setSoTimeout(int ms) {}

  @Override
  public int getSoTimeout() {
    return 0;
  }
}
