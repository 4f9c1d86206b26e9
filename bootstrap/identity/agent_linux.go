package identity

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Main is the agent: it serves labctl's port of the guest that it runs in until it is ended. It returns an exit code.
func Main() int {
	log := func(text string) { fmt.Fprintln(os.Stderr, text) }
	guest := &Guest{Root: "/", System: linux{}, Runner: run.Local{}}
	ctx := context.Background()
	port, err := OpenPort(ctx, "/", PortName)
	if err != nil {
		log("labctl-agent: " + err.Error())
		return 1
	}
	if err := guest.Resume(ctx); err != nil {
		log("start SSH again: " + err.Error())
	}
	if err := Serve(ctx, port, guest.Handle, log); err != nil {
		log("labctl-agent: " + err.Error())
		return 1
	}
	return 0
}

// linux is the real System.
type linux struct{}

func (linux) Now() time.Time                { return time.Now() }
func (linux) SetHostname(name string) error { return unix.Sethostname([]byte(name)) }

func (linux) SetTime(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

func (linux) BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

func (linux) AddEntropy(data []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// struct rand_pool_info: entropy in bits, size in bytes, data.
	info := binary.NativeEndian.AppendUint32(nil, uint32(len(data)*8))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(data)))
	info = append(info, data...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return fmt.Errorf("RNDADDENTROPY: %w", errno)
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.RNDRESEEDCRNG, 0); err != nil {
		return fmt.Errorf("RNDRESEEDCRNG: %w", err)
	}
	return nil
}

// portWait bounds how long OpenPort waits for the kernel's driver to make the port.
const portWait = 2 * time.Minute

// OpenPort opens the virtio serial port of this name below root ("/"), waiting for it to appear.
func OpenPort(ctx context.Context, root, name string) (*VirtioPort, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, portWait, fmt.Errorf("no virtio serial port %s within %s", name, portWait))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		path, err := findPort(root, name)
		if err == nil {
			return openPort(path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// findPort prefers udev's link and falls back to sysfs, which knows the port before udev has made the link.
func findPort(root, name string) (string, error) {
	link := filepath.Join(root, "dev/virtio-ports", name)
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	names, err := filepath.Glob(filepath.Join(root, "sys/class/virtio-ports/*/name"))
	if err != nil {
		return "", err
	}
	for _, file := range names {
		got, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(got)) == name {
			dev := filepath.Join(root, "dev", filepath.Base(filepath.Dir(file)))
			_, err := os.Stat(dev)
			return dev, err
		}
	}
	return "", fmt.Errorf("%s is not there", link)
}

// VirtioPort is a Port on a virtio serial device.
type VirtioPort struct{ fd, epoll int }

func openPort(path string) (*VirtioPort, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		// The device reports a hang-up for as long as no host is connected. Only edge triggering turns that into one
		// wake-up per change instead of a busy loop.
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return &VirtioPort{fd: fd, epoll: epoll}, nil
}

// Close releases the port.
func (p *VirtioPort) Close() error { return errors.Join(unix.Close(p.epoll), unix.Close(p.fd)) }

// Read implements Port.
func (p *VirtioPort) Read(buf []byte) (int, error) {
	n, err := unix.Read(p.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return 0, ErrNotReady
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// writeWait bounds how long an answer waits for a host that does not read.
const writeWait = 5 * time.Second

// Write implements Port.
func (p *VirtioPort) Write(data []byte) (int, error) {
	written := 0
	for deadline := time.Now().Add(writeWait); written < len(data); {
		n, err := unix.Write(p.fd, data[written:])
		written += max(n, 0)
		switch {
		case err == nil:
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return written, err
		case time.Now().After(deadline):
			return written, fmt.Errorf("the host did not read for %s", writeWait)
		default:
			poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLOUT}}
			if _, err := unix.Poll(poll, 100); err == nil && poll[0].Revents&unix.POLLHUP != 0 {
				return written, errors.New("the host has left")
			}
		}
	}
	return written, nil
}

// Wait implements Port. It notices the end of ctx within a second.
func (p *VirtioPort) Wait(ctx context.Context, limit time.Duration) {
	for deadline := time.Now().Add(limit); ctx.Err() == nil; {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		if ctx.Done() != nil {
			left = min(left, time.Second)
		}
		n, err := unix.EpollWait(p.epoll, make([]unix.EpollEvent, 1), int(left.Milliseconds())+1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
