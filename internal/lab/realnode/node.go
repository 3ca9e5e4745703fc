package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Options of a node. All are required unless a default is stated.
type Options struct {
	// Dir holds everything that the node stores; made if missing. Absolute.
	Dir string
	// Name of the Node.
	Name string
	// Kubeconfig leads to the member's API server, CAFile is the authority whose
	// clients the kubelet answers. Both absolute.
	Kubeconfig, CAFile string
	// Port of the member's API server, which no other member of this machine has: the
	// node's addresses follow from it.
	Port int
	// Region labels the node; "" for none.
	Region string
	// Programs is the directory of containerd, kubelet and so on; `make nodes` fills one.
	// Absolute.
	Programs string
	// Images are directories of OCI image layouts that the node has beside Image. Each is
	// called by its directory's name and the tags that its index gives. Absolute.
	Images []string
}

// Image is what all nodes have to run, beside upstream's metrics-server.
const Image = "lab.atoll.dev/busybox:1"

// insideVariable tells this program, started again, that it is the first process of the
// node's namespaces.
const insideVariable = "ATOLL_LAB_INSIDE_NODE"

// programs that are built from Go modules.
var programs = []string{"containerd", "containerd-shim-runc-v2", "ctr", "host-local", "kubelet", metricsServerProgram, "ptp"}

// Missing says what a machine lacks to run such nodes, each with what to do about it; nil
// where all is there. dir is Options.Programs.
func Missing(dir string) error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("real nodes need root: containers are made of namespaces, mounts and cgroups"))
	}
	for _, tool := range []struct{ name, from string }{{"runc", "runc"}, {"busybox", "busybox-static"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing = append(missing, fmt.Errorf("real nodes need %s, on Debian: apt-get install %s: %w", tool.name, tool.from, err))
		}
	}
	if _, err := cgroups(); err != nil {
		missing = append(missing, err)
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			missing = append(missing, fmt.Errorf("real nodes need %s, which `make nodes` builds: %w", name, err))
		}
	}
	return errors.Join(missing...)
}

// Run the node until ctx ends, which is no error, or until a part of it fails.
func Run(ctx context.Context, o Options) error {
	if os.Getenv(insideVariable) != "" {
		return inside(o)
	}
	if err := Missing(o.Programs); err != nil {
		return err
	}
	if err := raiseInotify(); err != nil {
		return err
	}
	device, err := newDevice(o.Port)
	if err != nil {
		return err
	}
	defer device.Close()
	link, err := serveAPI(ctx, o.Port)
	if err != nil {
		return err
	}
	defer link.Close()
	// What the kernel takes for the end of a parent is the end of its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err = cmd.Run()
	removeCgroups(o.cgroup())
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the node %s has ended, its messages are above: %w", o.Name, err)
}

// raiseInotify lets this machine's root have as many watchers of files as several nodes
// take: the 128 of a fresh kernel are few for one lab.
func raiseInotify() error {
	const path, enough = "/proc/sys/fs/inotify/max_user_instances", 1024
	data, err := os.ReadFile(path)
	if err == nil {
		var now int
		if now, err = strconv.Atoi(strings.TrimSpace(string(data))); err == nil && now < enough {
			err = os.WriteFile(path, []byte(strconv.Itoa(enough)), 0)
		}
	}
	if err != nil {
		return fmt.Errorf("raise what this machine allows of inotify instances to %d: %w", enough, err)
	}
	return nil
}

// cgroup of all containers of the node.
func (o Options) cgroup() string { return "atoll-lab-" + strconv.Itoa(o.Port) }
