// Package lab runs a whole Atoll installation on one machine: a hub, real
// member clusters, one agent per member, and between each agent and the hub a
// link that can be broken.
//
// Contract:
//
//   - A lab lives in one directory. It holds the record of the lab, everything
//     that its processes store and log, and the kubeconfigs: hub.kubeconfig and
//     member1.kubeconfig to memberN.kubeconfig, all cluster admin.
//   - All processes are detached: they outlive the program that started them,
//     and any program can Open the directory and go on. Ports and credentials
//     stay the same over every kill and start.
//   - Components are called "hub", "relay", "memberN" and "agent/memberN", and with
//     Options.RealNodes "node/memberN"; where
//     several hubs share an etcd, also "etcd", "hub2", "hub3" and so on, each hub with
//     a kubeconfig of its own. An agent's link is that to all of them.
//   - Methods return once what they say is so: Start when the component is
//     ready, Kill and Stop when the process is gone, Cut, HalfOpen and Heal when the link
//     has changed. They may be called concurrently, from several programs too.
//   - Down ends every process of the lab, also those that a crash of Up left
//     without record, and no other process.
//   - Nothing outside the directory is written, but for reservations of ports
//     under the temporary directory, which lose their meaning with the lab.
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

	"atoll.dev/atoll/internal/lab/process"
	"atoll.dev/atoll/internal/lab/relay"
)

// BinDirVariable names the directory in which the binaries are looked for when
// Options.Binaries leaves them out; without it, that of the running program.
const BinDirVariable = "ATOLL_BIN_DIR"

// Binaries are paths of the programs of a lab. Empty ones are looked for under
// their usual names, see BinDirVariable.
type Binaries struct {
	Lab   string `json:"lab"`   // atoll-lab: members and relay
	Hub   string `json:"hub"`   // atoll-hub
	Atoll string `json:"atoll"` // atoll: agents, and the commands that join
}

// Options says which lab to bring up. For a directory that holds a lab already
// they have to describe the same one.
type Options struct {
	// Dir is made if missing.
	Dir string
	// Members is the number of member clusters; without a hub at least 1.
	Members int
	// Nodes is the number of made-up nodes per member; 0 means 3.
	Nodes int
	// RealNodes gives each member one node that really runs containers, see package
	// realnode, in place of those that are made up.
	RealNodes bool
	// Images are directories of OCI image layouts that real nodes have, as pods' images of
	// the directories' names and the layouts' tags. They are loaded when a node starts.
	Images []string
	// Regions are given to the members in turn: to their nodes as labels and,
	// on the hub, to Cluster.spec.region and the label "region". Empty: none.
	Regions []string
	// Hubless leaves out hub, relay and agents.
	Hubless bool
	// Hubs is the number of hubs; 0 means 1. Several share an etcd of its own.
	Hubs int
	// Binaries may be left empty.
	Binaries Binaries
	// HubArgs and AgentArgs are added to the command lines.
	HubArgs, AgentArgs []string
	// Progress gets a line per step; nil means silence.
	Progress io.Writer
}

// Lab is a handle; it holds no resource and needs no closing.
type Lab struct {
	dir      string
	progress io.Writer
}

// Up makes the lab, or brings an existing one back, and returns when all of it
// is ready and every member is joined. On error what runs stays up, so that it
// can be looked at; Down ends it.
func Up(ctx context.Context, o Options) (*Lab, error) {
	dir, err := canonical(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, progress: o.Progress}
	if l.progress == nil {
		l.progress = io.Discard
	}
	r, err := l.recordFor(ctx, o)
	if err != nil {
		return nil, err
	}
	l.say("bringing up %d member clusters in %s", len(r.Members), dir)
	group, groupCtx := errgroup.WithContext(ctx)
	if !r.Hubless {
		group.Go(func() error { return l.bringHubs(groupCtx, r) })
	}
	for i := range r.Members {
		group.Go(func() error { return l.bring(groupCtx, r.memberAndNode(&r.Members[i])...) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if r.Hubless {
		return l, nil
	}
	if err := l.join(ctx, r); err != nil {
		return nil, err
	}
	return l, nil
}

// Open returns the lab that dir holds, whether it runs or not.
func Open(dir string) (*Lab, error) {
	dir, err := canonical(dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, progress: io.Discard}
	if _, err := l.load(); err != nil {
		return nil, err
	}
	return l, nil
}

// Dir is the lab's directory, absolute.
func (l *Lab) Dir() string { return l.dir }

// Kubeconfig is the path of the admin kubeconfig of "hub" or "memberN".
func (l *Lab) Kubeconfig(name string) string {
	return filepath.Join(l.dir, name+".kubeconfig")
}

// stopGrace is what hub and agents get to end by themselves in Down.
const stopGrace = 5 * time.Second

// Down ends all processes of the lab. Data stays; Up brings the same lab back.
func (l *Lab) Down(ctx context.Context) error {
	r, err := l.load()
	if err != nil && !errors.Is(err, errNoLab) {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	if err == nil {
		for _, c := range r.components() {
			group.Go(func() error {
				if c.graceful {
					return c.process.Stop(groupCtx, stopGrace)
				}
				return c.process.Kill(groupCtx)
			})
		}
	}
	err = group.Wait()
	_, ownedErr := process.KillOwned(ctx, l.dir)
	return errors.Join(err, ownedErr)
}

// Delete is Down, and then removes the directory.
func (l *Lab) Delete(ctx context.Context) error {
	if err := l.Down(ctx); err != nil {
		return err
	}
	if r, err := l.load(); err == nil {
		releasePorts(r)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("remove the lab's directory: %w", err)
	}
	return nil
}

// bring starts components that do not run, in turn, and waits for each.
func (l *Lab) bring(ctx context.Context, components ...component) error {
	for _, c := range components {
		begin := time.Now()
		if err := l.start(ctx, c); err != nil {
			return err
		}
		if err := c.process.WaitReady(ctx, c.timeout, c.ready); err != nil {
			return err
		}
		if err := c.finish(); err != nil {
			return err
		}
		l.say("%s is ready (%.1fs)", c.name, time.Since(begin).Seconds())
	}
	return nil
}

// start starts the component unless it runs.
func (l *Lab) start(ctx context.Context, c component) error {
	return l.locked(ctx, func() error {
		if state, _ := c.process.State(); state == process.Running {
			return nil
		}
		return c.process.Start()
	})
}

func (l *Lab) say(format string, args ...any) {
	fmt.Fprintf(l.progress, format+"\n", args...)
}

func (l *Lab) relay() relay.Client { return relay.Client{Dir: l.dir} }

// canonical makes one name of a directory, whichever way people spell it.
func canonical(dir string) (string, error) {
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
