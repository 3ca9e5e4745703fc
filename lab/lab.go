// Package lab runs a whole Atoll installation on one machine: a hub, real member clusters,
// one agent per member, and a breakable link between each agent and the hub.
//
// Contract:
//
//   - A lab lives in one directory. It holds the record of the lab, the data and logs of
//     its processes, and the kubeconfigs: hub.kubeconfig and member1.kubeconfig to
//     memberN.kubeconfig, all cluster admin.
//   - All processes are detached: they outlive their starter, and any program can open the
//     directory and continue. Ports and credentials stay the same over every kill and
//     start.
//   - Components are called "hub", "relay", "memberN" and "agent/memberN", and with
//     Options.RealNodes "node/memberN". If several hubs share an etcd, there are also
//     "etcd", "hub2", "hub3" and so on, each hub with its own kubeconfig. An agent's link
//     leads to all of them.
//   - Methods return when their effect is complete: Start when the component is ready,
//     KillComponent and Stop when the process is gone, CutLink, DiscardLinkTraffic and HealLink when
//     the link has changed. They may be called concurrently, from several programs too.
//   - StopAll ends every process of the lab, also processes that a crash of BringUp left
//     without a record, and no other process.
//   - Nothing outside the directory is written except reservations of ports under the
//     temporary directory, which expire with the lab.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/lab/process"
	"atoll.dev/atoll/lab/relay"
)

// BinDirVariable names the directory of the binaries that Options.Binaries leaves out; the
// default is the directory of the running program.
const BinDirVariable = "ATOLL_BIN_DIR"

// Binaries are the paths of a lab's programs. An empty path means the usual name, see
// BinDirVariable.
type Binaries struct {
	Lab   string `json:"lab"`   // atoll-lab: members and relay
	Hub   string `json:"hub"`   // atoll-hub
	Atoll string `json:"atoll"` // atoll: agents, and the commands that join
}

// Options describe a lab. For a directory with a lab they must describe the same one.
type Options struct {
	// Dir is created if it is missing.
	Dir string
	// Members is the number of member clusters; without a hub at least 1.
	Members int
	// Nodes is the number of fake nodes per member; 0 means 3.
	Nodes int
	// RealNodes gives each member one node that really runs containers, see package
	// realnode, instead of fake nodes.
	RealNodes bool
	// Images are directories of OCI image layouts for real nodes. Pods use them by the
	// directories' names and the layouts' tags. A starting node loads them.
	Images []string
	// Regions are assigned to the members in turn: as labels of their nodes and, on the
	// hub, as Cluster.spec.region and the label "region". Empty means none.
	Regions []string
	// Hubless leaves out hub, relay and agents.
	Hubless bool
	// Hubs is the number of hubs; 0 means 1. Several hubs share an etcd of their own.
	Hubs int
	// Binaries may be left empty.
	Binaries Binaries
	// HubArgs and AgentArgs are added to the command lines.
	HubArgs, AgentArgs []string
	// Progress receives a line per step; nil means none.
	Progress io.Writer
	// EndsWithStarter ends the components that this process starts when it ends in any way, also
	// when it is killed. Otherwise they stay up until StopAll.
	EndsWithStarter bool
}

// Lab is a handle; it holds no resource and needs no closing.
type Lab struct {
	dir             string
	progress        io.Writer
	endsWithStarter bool
}

// BringUp creates or restarts the lab, and returns when all of it is ready and every member
// has joined. On error the running parts stay up for inspection; StopAll ends them.
func BringUp(ctx context.Context, o Options) (*Lab, error) {
	dir, err := canonicalDir(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, progress: o.Progress, endsWithStarter: o.EndsWithStarter}
	if l.progress == nil {
		l.progress = io.Discard
	}
	r, err := l.loadOrCreateRecord(ctx, o)
	if err != nil {
		return nil, err
	}
	l.reportProgress("bringing up %d member clusters in %s", len(r.Members), dir)
	group, groupCtx := errgroup.WithContext(ctx)
	if !r.Hubless {
		group.Go(func() error { return l.startHubs(groupCtx, r) })
	}
	for i := range r.Members {
		group.Go(func() error { return l.startComponents(groupCtx, r.memberAndNode(&r.Members[i])...) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if r.Hubless {
		return l, nil
	}
	if err := l.joinMembers(ctx, r); err != nil {
		return nil, err
	}
	return l, nil
}

// OpenExisting returns the lab in dir, running or not.
func OpenExisting(dir string) (*Lab, error) {
	dir, err := canonicalDir(dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, progress: io.Discard}
	if _, err := l.loadRecord(); err != nil {
		return nil, err
	}
	return l, nil
}

// Dir is the lab's directory, absolute.
func (l *Lab) Dir() string { return l.dir }

// KubeconfigPath is the path of the admin kubeconfig of "hub" or "memberN".
func (l *Lab) KubeconfigPath(name string) string {
	return filepath.Join(l.dir, name+".kubeconfig")
}

// stopGrace is the time in which hub and agents must end by themselves in StopAll.
const stopGrace = 5 * time.Second

// StopAll ends all processes of the lab. The data stays; BringUp restarts the same lab.
func (l *Lab) StopAll(ctx context.Context) error {
	r, err := l.loadRecord()
	if err != nil && !errors.Is(err, errNoLab) {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	if err == nil {
		for _, c := range r.allComponents() {
			group.Go(func() error {
				if c.graceful {
					return c.process.Stop(groupCtx, stopGrace)
				}
				return c.process.KillProcess(groupCtx)
			})
		}
	}
	err = group.Wait()
	_, ownedErr := process.KillOwnedProcesses(ctx, l.dir)
	return errors.Join(err, ownedErr)
}

// Delete calls StopAll, and then removes the directory.
func (l *Lab) Delete(ctx context.Context) error {
	if err := l.StopAll(ctx); err != nil {
		return err
	}
	if r, err := l.loadRecord(); err == nil {
		releasePorts(r)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("remove the lab's directory: %w", err)
	}
	return nil
}

// startComponents starts stopped components in turn, and waits for each.
func (l *Lab) startComponents(ctx context.Context, components ...component) error {
	for _, c := range components {
		begin := time.Now()
		if err := l.start(ctx, c); err != nil {
			return err
		}
		if err := c.process.WaitReady(ctx, c.timeout, c.ready); err != nil {
			return err
		}
		if err := c.linkPublishedFile(); err != nil {
			return err
		}
		l.reportProgress("%s is ready (%.1fs)", c.name, time.Since(begin).Seconds())
	}
	return nil
}

// start starts the component unless it runs.
func (l *Lab) start(ctx context.Context, c component) error {
	return l.withLock(ctx, func() error {
		if state, _ := c.process.CurrentState(); state == process.Running {
			return nil
		}
		c.process.EndsWithStarter = l.endsWithStarter
		return c.process.Start()
	})
}

func (l *Lab) reportProgress(format string, args ...any) {
	fmt.Fprintf(l.progress, format+"\n", args...)
}

func (l *Lab) relayClient() relay.LinkClient { return relay.LinkClient{Dir: l.dir} }

// canonicalDir returns one absolute path for all spellings of a directory.
func canonicalDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("the lab's directory is not given: add --dir DIR")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("lab directory %s: %w", dir, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}
