package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// containerdSocket of containerd, in a /run that no other node sees.
const containerdSocket = "/run/containerd/containerd.sock"

// startTimeout is how long containerd may take to listen.
const startTimeout = time.Minute

// runNodeInitProcess is the first process of the node's namespaces. It starts the node's programs, and
// collects all processes that lose their parent, as containers' shims do. When it ends, the
// kernel ends all others.
func runNodeInitProcess(o NodeOptions) error {
	if err := o.writeConfigs(); err != nil {
		return err
	}
	if err := o.mountNodeDirs(); err != nil {
		return err
	}
	containerd, err := startNodeProgram("containerd", "--config", filepath.Join(ownDir, containerdConfig))
	if err != nil {
		return err
	}
	if err := waitForUnixSocket(containerdSocket); err != nil {
		return err
	}
	if err := o.loadAllImages(); err != nil {
		return err
	}
	kubelet, err := startNodeProgram("kubelet", o.kubeletArgs()...)
	if err != nil {
		return err
	}
	return reapProcesses(map[int]string{containerd: "containerd", kubelet: "kubelet"})
}

// loadAllImages loads the images that every node has, and those of the options.
func (o NodeOptions) loadAllImages() error {
	metricsServer, err := metricsServerImage(ownPrograms)
	if err != nil {
		return err
	}
	for _, i := range []ociImage{busyboxImage(), metricsServer} {
		archive := filepath.Join(ownDir, "image.tar")
		if err := i.write(archive); err != nil {
			return err
		}
		if err := loadAndRemoveArchive(i.names[0], "", archive); err != nil {
			return err
		}
	}
	for to, dir := range o.imageLayouts() {
		archive := to + ".tar"
		if err := writeArchiveOfDir(archive, to); err != nil {
			return fmt.Errorf("read the image layout %s: %w", dir, err)
		}
		if err := loadAndRemoveArchive(dir, filepath.Base(dir), archive); err != nil {
			return err
		}
	}
	return nil
}

// loadAndRemoveArchive loads the images of an archive, and removes it.
func loadAndRemoveArchive(what, name, archive string) error {
	if err := loadImages(what, name, archive); err != nil {
		return err
	}
	return os.Remove(archive)
}

// The places of the node's own files inside.
const (
	ownDir      = "/run/node"
	ownPrograms = "/run/programs"
)

// imageLayouts returns the images' directories by their places inside.
func (o NodeOptions) imageLayouts() map[string]string {
	out := map[string]string{}
	for i, dir := range o.Images {
		out[fmt.Sprintf("/run/image%d", i)] = dir
	}
	return out
}

func bindMountLogDir() error {
	logs := filepath.Join(ownDir, "log")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	return unix.Mount(logs, "/var/log", "", unix.MS_BIND, "")
}

// mountNodeDirs mounts the namespaces' own /proc, and a /run, /var/lib and /var/log of
// their own, where programs of several nodes would conflict. Mounts here are not visible
// outside. Options.Dir and Options.Programs always appear below /run.
func (o NodeOptions) mountNodeDirs() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep the node's mounts to itself: %w", err)
	}
	dirs := o.imageLayouts()
	dirs[ownDir], dirs[ownPrograms] = o.Dir, o.Programs
	trees := map[string]int{}
	for to, from := range dirs {
		tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("take %s into the node: %w", from, err)
		}
		trees[to] = tree
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount the node's /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount the node's %s: %w", dir, err)
		}
	}
	for to, tree := range trees {
		err := os.Mkdir(to, 0o700)
		if err == nil {
			err = unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("take %s into the node: %w", dirs[to], err)
		}
	}
	if err := bindMountLogDir(); err != nil {
		return fmt.Errorf("mount the node's /var/log: %w", err)
	}
	// A kubelet shares its mounts for containers with them.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the node's mounts with its containers: %w", err)
	}
	return nil
}

// loadImages loads an archive of images into containerd. Their names are those in the
// archive, or its tags behind a name.
func loadImages(what, name, archive string) error {
	args := []string{"--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", snapshotterName}
	if name != "" {
		args = append(args, "--base-name", "docker.io/library/"+name) // as a kubelet understands a bare name
	}
	if out, err := exec.Command(filepath.Join(ownPrograms, "ctr"), append(args, archive)...).CombinedOutput(); err != nil {
		return fmt.Errorf("load the image %s into containerd: %w: %s", what, err, out)
	}
	return nil
}

// startNodeProgram starts one of the node's programs, which reapProcesses waits for.
func startNodeProgram(name string, args ...string) (pid int, err error) {
	path := filepath.Join(ownPrograms, name)
	process, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
		Dir: ownDir, Files: []*os.File{nil, os.Stdout, os.Stderr},
		// containerd finds the shim in PATH.
		Env: append(os.Environ(), "PATH="+ownPrograms+":"+os.Getenv("PATH")),
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	return process.Pid, nil
}

// waitForUnixSocket returns when a process listens at the Unix socket.
func waitForUnixSocket(path string) error {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		if time.Since(begin) > startTimeout {
			return fmt.Errorf("containerd does not listen after %s, its messages are above: %w", startTimeout, err)
		}
	}
}

// reapProcesses reaps ended processes, until a required one ends.
func reapProcesses(needed map[int]string) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the node's processes: %w", err)
		}
		if name, ok := needed[pid]; ok {
			return fmt.Errorf("%s has ended (exit code %d, signal %d)", name, status.ExitStatus(), status.Signal())
		}
	}
}

// cgroupMounts returns the mount points of cgroup hierarchies: one directory for each.
func cgroupMounts() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("real nodes need cgroups, mounted at %s: %w", root, err)
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(root, e.Name()))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("real nodes need cgroups, and nothing is mounted below %s", root)
	}
	return all, nil
}

// removeCgroups removes the cgroups of a node whose processes are all gone. A remaining one
// costs nothing, and the next node of that name uses it again.
func removeCgroups(name string) {
	hierarchies, err := cgroupMounts()
	if err != nil {
		return
	}
	for _, h := range hierarchies {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(h, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = unix.Rmdir(dirs[i])
		}
	}
}
