package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/lab/realnode"
)

const (
	recordName    = "lab.json"
	lockName      = "lab.lock"
	recordVersion = 1
	defaultNodes  = 3
)

// errNoLab means that a directory holds no lab.
var errNoLab = errors.New("no lab there")

// labRecord is the stored description of a lab. The state of its processes is not in it: it is
// read from the processes.
type labRecord struct {
	Version     int            `json:"version"`
	Hubless     bool           `json:"hubless,omitempty"`
	Nodes       int            `json:"nodes"`
	RealNodes   bool           `json:"realNodes,omitempty"`
	Images      []string       `json:"images,omitempty"`
	Members     []memberRecord `json:"members"`
	HubPort     int            `json:"hubPort,omitempty"`
	GatewayPort int            `json:"gatewayPort,omitempty"`
	// EtcdPort and MoreHubs are set if hubs share an etcd.
	EtcdPort   int         `json:"etcdPort,omitempty"`
	MoreHubs   []hubRecord `json:"moreHubs,omitempty"`
	Binaries   Binaries    `json:"binaries"`
	HubArgs    []string    `json:"hubArgs,omitempty"`
	AgentArgs  []string    `json:"agentArgs,omitempty"`
	Invitation invitation  `json:"invitation,omitzero"`

	dir string
}

type memberRecord struct {
	Name   string `json:"name"`
	Region string `json:"region,omitempty"`
	Port   int    `json:"port"`
	// LinkPort is the relay's port for this member's agent.
	LinkPort int `json:"linkPort,omitempty"`
	// MoreLinks are the same for the hubs after the first.
	MoreLinks []int `json:"moreLinks,omitempty"`
	Joined    bool  `json:"joined,omitempty"`
	// RuntimeConfig of the member's API server.
	RuntimeConfig string `json:"runtimeConfig,omitempty"`
}

// hubRecord describes a hub after the first.
type hubRecord struct {
	Port        int `json:"port"`
	GatewayPort int `json:"gatewayPort"`
}

// invitation is the output of "atoll token create -o json".
type invitation struct {
	Token  string `json:"token"`
	Hub    string `json:"hub,omitempty"`
	CAHash string `json:"caHash"`
}

// loadOrCreateRecord loads the directory's record, or creates it from the options. The binaries
// always come from the options, so that a rebuilt program in another place takes over an
// existing lab.
func (l *Lab) loadOrCreateRecord(ctx context.Context, o Options) (*labRecord, error) {
	binaries, err := o.Binaries.find(o.Hubless)
	if err != nil {
		return nil, err
	}
	if o.RealNodes {
		if err := realnode.MissingRequirements(binaries.nodeProgramDir()); err != nil {
			return nil, err
		}
	}
	images, err := o.resolveImageDirs()
	if err != nil {
		return nil, err
	}
	if o.Members < 0 || o.Members == 0 && o.Hubless {
		return nil, fmt.Errorf("a lab of %d members is none: use --members 1 or more", o.Members)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lab directory: %w", err)
	}
	var r *labRecord
	err = l.withLock(ctx, func() error {
		r, err = l.loadRecord()
		if errors.Is(err, errNoLab) {
			r, err = l.newRecord(o)
		}
		if err != nil {
			return err
		}
		if err := l.checkOptionsMatchRecord(r, o); err != nil {
			return err
		}
		r.Binaries, r.HubArgs, r.AgentArgs, r.Images = binaries, o.HubArgs, o.AgentArgs, images
		return r.saveRecord()
	})
	return r, err
}

// checkOptionsMatchRecord refuses options for another lab than the recorded one.
func (l *Lab) checkOptionsMatchRecord(r *labRecord, o Options) error {
	if r.RealNodes != o.RealNodes {
		return fmt.Errorf("%s holds a lab with other nodes (real: %t); bring up the same, or remove it with: atoll-lab down --delete --dir %s", l.dir, r.RealNodes, l.dir)
	}
	if len(r.Members) != o.Members || r.Hubless != o.Hubless || len(r.hubNames()) != o.hubCount() {
		return fmt.Errorf("%s holds a lab of %d members and %d hubs; bring up the same, or remove it with: atoll-lab down --delete --dir %s",
			l.dir, len(r.Members), len(r.hubNames()), l.dir)
	}
	return nil
}

// resolveImageDirs returns the layouts' directories, which must exist.
func (o Options) resolveImageDirs() (out []string, err error) {
	if len(o.Images) > 0 && !o.RealNodes {
		return nil, errors.New("images are for nodes that run them: give --real-nodes, too")
	}
	for _, dir := range o.Images {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
			return nil, fmt.Errorf("%s is no OCI image layout; make images writes some: %w", dir, err)
		}
		out = append(out, dir)
	}
	return out, nil
}

// newRecord describes a new lab and reserves its ports.
func (l *Lab) newRecord(o Options) (*labRecord, error) {
	r := &labRecord{Version: recordVersion, Hubless: o.Hubless, Nodes: o.Nodes, RealNodes: o.RealNodes, dir: l.dir}
	if o.RealNodes {
		r.Nodes = 0
	} else if r.Nodes == 0 {
		r.Nodes = defaultNodes
	}
	ports := portPicker{dir: l.dir}
	if !o.Hubless {
		r.HubPort, r.GatewayPort = ports.pickPort(), ports.pickPort()
	}
	if o.hubCount() > 1 {
		r.EtcdPort = ports.pickPort()
	}
	for range o.hubCount() - 1 {
		r.MoreHubs = append(r.MoreHubs, hubRecord{Port: ports.pickPort(), GatewayPort: ports.pickPort()})
	}
	for i := range o.Members {
		m := memberRecord{Name: fmt.Sprintf("member%d", i+1), Port: ports.pickPort()}
		if !o.Hubless {
			m.LinkPort = ports.pickPort()
		}
		for range r.MoreHubs {
			m.MoreLinks = append(m.MoreLinks, ports.pickPort())
		}
		if len(o.Regions) > 0 {
			m.Region = o.Regions[i%len(o.Regions)]
		}
		r.Members = append(r.Members, m)
	}
	return r, ports.err
}

// loadRecord reads the record; errNoLab if the directory has none.
func (l *Lab) loadRecord() (*labRecord, error) {
	file := filepath.Join(l.dir, recordName)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; make one with: atoll-lab up --dir %s --members 3", errNoLab, file, l.dir)
	}
	r := &labRecord{dir: l.dir}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("the lab's record %s: %w; remove the directory and start again", file, err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("%s was written by another version of atoll-lab (%d, this one reads %d); remove the directory and start again", file, r.Version, recordVersion)
	}
	return r, nil
}

// saveRecord writes the record completely or not at all. The caller holds the lab's lock.
func (r *labRecord) saveRecord() error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, recordName)
	if err := os.WriteFile(file+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("the lab's record: %w", err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return fmt.Errorf("the lab's record: %w", err)
	}
	return nil
}

// updateRecord changes the record on disk and returns the changed record. Records in memory are
// immutable, because goroutines share them.
func (l *Lab) updateRecord(ctx context.Context, change func(*labRecord)) (*labRecord, error) {
	var r *labRecord
	err := l.withLock(ctx, func() error {
		var err error
		if r, err = l.loadRecord(); err != nil {
			return err
		}
		change(r)
		return r.saveRecord()
	})
	return r, err
}

// memberNamed returns a member; the error lists the existing ones.
func (r *labRecord) memberNamed(name string) (*memberRecord, error) {
	i := slices.IndexFunc(r.Members, func(m memberRecord) bool { return m.Name == name })
	if i < 0 {
		all := "none"
		if n := len(r.Members); n > 0 {
			all = r.Members[0].Name + " to " + r.Members[n-1].Name
		}
		return nil, fmt.Errorf("there is no member %q in this lab; it has %s", name, all)
	}
	return &r.Members[i], nil
}

// withLock runs f while no other program or goroutine holds this lab's lock.
func (l *Lab) withLock(ctx context.Context, f func() error) error {
	file, err := os.OpenFile(filepath.Join(l.dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("the lab's lock: %w", err)
	}
	defer file.Close()
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("the lab's lock %s: %w", file.Name(), err)
	}
	return f()
}

// ProgramPath returns the path of a program by its usual name: in the directory of
// BinDirVariable, else in this program's directory.
func ProgramPath(name string) (string, error) {
	if dir := os.Getenv(BinDirVariable); dir != "" {
		return filepath.Join(dir, name), nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s beside this program: %w", name, err)
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

// MissingContainerRequirements returns the requirements of Options.RealNodes that this machine
// lacks, with their remedies; nil if it lacks none.
func MissingContainerRequirements() error {
	binaries, err := Binaries{}.find(true)
	if err != nil {
		return err
	}
	return realnode.MissingRequirements(binaries.nodeProgramDir())
}

// nodeProgramDir is the directory of the real nodes' programs.
func (b Binaries) nodeProgramDir() string { return filepath.Join(filepath.Dir(b.Lab), "nodes") }

// find completes the paths and checks that the files exist.
func (b Binaries) find(hubless bool) (Binaries, error) {
	paths := map[string]*string{"atoll-lab": &b.Lab}
	if !hubless {
		paths["atoll-hub"], paths["atoll"] = &b.Hub, &b.Atoll
	}
	for name, path := range paths {
		if *path == "" {
			usual, err := ProgramPath(name)
			if err != nil {
				return b, err
			}
			*path = usual
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return b, fmt.Errorf("find %s: %w", name, err)
		}
		*path = abs
		if _, err := os.Stat(abs); err != nil {
			return b, fmt.Errorf("%s is not at %s: build it with \"make build\", set %s to the directory of the binaries, or give its path by flag: %w", name, abs, BinDirVariable, err)
		}
	}
	return b, nil
}
