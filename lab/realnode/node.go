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

// NodeOptions are the options of a node. All are required unless a default is stated.
type NodeOptions struct {
	// Dir holds the node's data; created if missing. Absolute.
	Dir string
	// Name is the name of the Node.
	Name string
	// Kubeconfig is the kubeconfig of the member's API server, CAFile the authority of the
	// kubelet's clients. Both are absolute.
	Kubeconfig, CAFile string
	// Port is the port of the member's API server, unique on this machine: the node's
	// addresses follow from it.
	Port int
	// Region labels the node; "" means none.
	Region string
	// Programs is the directory of containerd, kubelet and so on; `make nodes` fills it.
	// Absolute.
	Programs string
	// Images are directories of OCI image layouts that the node has besides BusyboxImage.
	// Each is called by its directory's name and the tags in its index. Absolute.
	Images []string
}

// BusyboxImage is the image that all nodes have, besides upstream's metrics-server.
const BusyboxImage = "lab.atoll.dev/busybox:1"

// insideVariable marks the restarted program as the first process of the node's namespaces.
const insideVariable = "ATOLL_LAB_INSIDE_NODE"

// requiredPrograms are built from Go modules.
var requiredPrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr", "host-local", "kubelet", metricsServerProgram, "ptp"}

// MissingRequirements returns the requirements that the machine lacks, each with its
// remedy; nil if it lacks none. dir is Options.Programs.
func MissingRequirements(dir string) error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("real nodes need root: containers are made of namespaces, mounts and cgroups"))
	}
	for _, tool := range []struct{ name, from string }{{"runc", "runc"}, {"busybox", "busybox-static"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing = append(missing, fmt.Errorf("real nodes need %s, on Debian: apt-get install %s: %w", tool.name, tool.from, err))
		}
	}
	if _, err := cgroupMounts(); err != nil {
		missing = append(missing, err)
	}
	for _, name := range requiredPrograms {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			missing = append(missing, fmt.Errorf("real nodes need %s, which `make nodes` builds: %w", name, err))
		}
	}
	return errors.Join(missing...)
}

// Run runs the node until ctx ends, which is no error, or until a part of it fails.
func Run(ctx context.Context, o NodeOptions) error {
	if os.Getenv(insideVariable) != "" {
		return runNodeInitProcess(o)
	}
	if err := MissingRequirements(o.Programs); err != nil {
		return err
	}
	if err := raiseInotifyLimit(); err != nil {
		return err
	}
	device, err := createNodeDevice(o.Port)
	if err != nil {
		return err
	}
	defer device.Close()
	link, err := forwardServiceToAPIServer(ctx, o.Port)
	if err != nil {
		return err
	}
	defer link.Close()
	// For the kernel a parent ends with its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err = cmd.Run()
	removeCgroups(o.cgroupParent())
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the node %s has ended, its messages are above: %w", o.Name, err)
}

// raiseInotifyLimit allows this machine's root enough file watchers for several nodes: the 128
// of a fresh kernel are few for one lab.
func raiseInotifyLimit() error {
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

// cgroupParent is the parent cgroup of all containers of the node.
func (o NodeOptions) cgroupParent() string { return "atoll-lab-" + strconv.Itoa(o.Port) }
