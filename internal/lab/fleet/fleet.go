package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Profiles are the rates of fleets by their kind.
var Profiles = map[string]Rates{
	// edge: shops and cars. Links come and go, hardware fails.
	"edge": {FailuresPerHour: 0.05, RestartsPerHour: 0.05, OfflinePerMinute: 0.002, OfflineFor: 2 * time.Minute, HealthDelay: 4 * time.Second},
	// cloud: data centres.
	"cloud": {FailuresPerHour: 0.01, RestartsPerHour: 0.01, OfflinePerMinute: 0.0001, OfflineFor: 20 * time.Second, HealthDelay: time.Second},
	// still: nothing happens that nobody asked for.
	"still": {},
}

const (
	// Agents that one process simulates at most: a stream takes one of the 20,000
	// files that it may open.
	streamsPerProcess  = 15_000
	checkInsPerProcess = 50_000
	// Time of the simulator is traded for its memory: where agents hold streams what
	// lives is most of what they cost, and where they check in little lives of each, and
	// what is garbage of their comings and goings is most.
	gcPercentStreams, gcPercentCheckIns = 40, 200
)

// Options of a fleet.
type Options struct {
	// Dir of the lab.
	Dir string
	// Prefix of names; default DefaultPrefix.
	Prefix string
	Agents int
	// Groups by which agents are labelled; default 1.
	Groups int
	// CheckIn interval; 0: hold the stream.
	CheckIn time.Duration
	Rates   Rates
	Seed    uint64
	// Link: shape links.
	Link bool
	// JoinRate limits joins per second; 0: as fast as the hub takes them.
	JoinRate float64
	// Joiners and Dialers at a time; 64 and 256 by the command.
	Joiners, Dialers int
	// Processes; 0: as many as are needed.
	Processes int
	// HubArgs of a hub that is started.
	HubArgs []string
	// ProfileDir takes the profiles of further processes; empty: none.
	ProfileDir string
	// Progress gets what goes on; nil: silence.
	Progress io.Writer
}

// Run a fleet until ctx ends.
func Run(ctx context.Context, o Options) error {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return errors.Join(errors.New("say where the lab is, by --dir"), err)
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of the lab: %w", err)
	}
	config, own, err := ensureHub(ctx, dir, o.HubArgs)
	if err != nil {
		return err
	}
	defer own.stop(ctx)
	invited, err := invite(ctx, config, o)
	if err != nil {
		return err
	}
	whole := crew{
		Dir: dir, Prefix: o.Prefix, Agents: o.Agents, To: o.Agents, Hubs: invited.hubs, CAHash: invited.caHash, CA: config.CAData,
		Tokens: invited.tokens, CheckIn: o.CheckIn, Seed: o.Seed, Rates: o.Rates, JoinRate: o.JoinRate,
		Joiners: o.Joiners, Dialers: o.Dialers, Link: o.Link, Socket: SocketPath(dir, o.Prefix), RefusedPause: 10 * time.Minute,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if o.Progress != nil {
		group.Go(func() error { return progress(ctx, o.Progress, Dial(dir, o.Prefix)) })
	}
	group.Go(func() error { return own.serves(ctx) })
	if n := o.processes(); n > 1 {
		group.Go(func() error { return runCrews(ctx, whole, n, o.ProfileDir) })
	} else {
		group.Go(func() error { return runHere(ctx, whole) })
	}
	return group.Wait()
}

// mostAgents is above what the memory of one machine holds.
const mostAgents = 1_000_000

// check what a user asks for, before anything is started for it.
func (o Options) check() error {
	switch {
	case o.Agents < 1 || o.Agents > mostAgents:
		return fmt.Errorf("--agents is %d: a fleet has from 1 to %d", o.Agents, mostAgents)
	case o.Groups < 1 || o.Joiners < 1 || o.Dialers < 1:
		return fmt.Errorf("--groups, --joiners and --dialers are at least 1, not %d, %d and %d", o.Groups, o.Joiners, o.Dialers)
	case o.Processes < 0 || o.Processes > o.Agents:
		return fmt.Errorf("--processes is %d: there are from 1 to as many as agents", o.Processes)
	case o.CheckIn < 0 || o.JoinRate < 0:
		return errors.New("--checkin and --rate are not negative")
	}
	if wrong := validation.IsDNS1123Label(fmt.Sprintf("%s-%d", o.Prefix, o.Agents)); len(wrong) > 0 {
		return fmt.Errorf("--prefix is %q, and names of clusters begin with it: %s", o.Prefix, strings.Join(wrong, "; "))
	}
	return nil
}

func (o Options) processes() int {
	most := streamsPerProcess
	if o.CheckIn > 0 {
		most = checkInsPerProcess
	}
	return max(o.Processes, (o.Agents+most-1)/most)
}

// runHere simulates in this process.
func runHere(ctx context.Context, c crew) error {
	percent := gcPercentStreams
	if c.CheckIn > 0 {
		percent = gcPercentCheckIns
	}
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	s, err := newSim(c)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// RunCrew is one process of several: what it is to do comes as JSON, and ends with
// the input.
func RunCrew(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var c crew
	d := json.NewDecoder(in)
	if err := d.Decode(&c); err != nil {
		return fmt.Errorf("what this process is to simulate: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until who started it is gone
		cancel()
	}()
	return runHere(ctx, c)
}

// crews are the processes of a simulator, as one.
type crews []*Control

// runCrews simulates in several processes, which end with this one.
func runCrews(ctx context.Context, whole crew, n int, profiles string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	command := []string{program, CrewCommand}
	if profiles != "" {
		command = append(command, "--"+ProfileFlag, profiles)
	}
	group, ctx := errgroup.WithContext(ctx)
	var all crews
	for i := range n {
		c := whole
		c.Process, c.From, c.To = i, whole.Agents*i/n, whole.Agents*(i+1)/n
		c.JoinRate, c.Joiners, c.Dialers = whole.JoinRate/float64(n), max(1, whole.Joiners/n), max(1, whole.Dialers/n)
		c.Socket = SocketPath(whole.Dir, fmt.Sprintf("%s.%d", whole.Prefix, i))
		all = append(all, Dial(whole.Dir, fmt.Sprintf("%s.%d", whole.Prefix, i)))
		group.Go(func() error { return startCrew(ctx, command, c) })
	}
	group.Go(func() error { return listen(ctx, whole.Socket, all) })
	return group.Wait()
}

func startCrew(ctx context.Context, command []string, c crew) error {
	order, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = ours, &errs
	cmd.Cancel = theirs.Close // it ends with its input
	cmd.WaitDelay = hubStop
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start process %d of the simulator: %w", c.Process, err)
	}
	ours.Close()
	if _, err := theirs.Write(order); err != nil {
		return fmt.Errorf("start process %d of the simulator: %w", c.Process, err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("process %d of the simulator ended: %w: %s", c.Process, err, strings.TrimSpace(errs.String()))
}

func (all crews) stats(ctx context.Context) (Stats, error) {
	sum := Stats{PID: os.Getpid(), PIDs: []int{os.Getpid()}}
	for _, c := range all {
		s, err := c.Stats(ctx)
		if err != nil {
			return sum, err
		}
		sum.add(s)
	}
	sum.JoinTime, sum.ConnectTime = sum.JoinTime.summed(), sum.ConnectTime.summed()
	return sum, nil
}

// add what another process counts.
func (s *Stats) add(o Stats) {
	for _, x := range []struct {
		to   *int
		more int
	}{
		{&s.Agents, o.Agents}, {&s.Joined, o.Joined}, {&s.Connected, o.Connected},
		{&s.Rows, o.Rows}, {&s.RowsHealthy, o.RowsHealthy}, {&s.Unacknowledged, o.Unacknowledged},
	} {
		*x.to += x.more
	}
	for _, x := range []struct {
		to   *int64
		more int64
	}{
		{&s.Joins, o.Joins}, {&s.Connects, o.Connects}, {&s.CheckIns, o.CheckIns}, {&s.Refusals, o.Refusals}, {&s.Failures, o.Failures},
		{&s.FramesUp, o.FramesUp}, {&s.FramesDown, o.FramesDown}, {&s.BytesUp, o.BytesUp}, {&s.BytesDown, o.BytesDown},
		{&s.Upserts, o.Upserts}, {&s.Reports, o.Reports}, {&s.Restarts, o.Restarts}, {&s.Outages, o.Outages},
	} {
		*x.to += x.more
	}
	s.PIDs = append(s.PIDs, o.PIDs...)
	s.JoinTime.merge(o.JoinTime)
	s.ConnectTime.merge(o.ConnectTime)
	s.LastRefusal, s.LastFailure = max(s.LastRefusal, o.LastRefusal), max(s.LastFailure, o.LastFailure)
}

func (all crews) holdings(ctx context.Context, yield func(Holding) error) error {
	for _, c := range all {
		if err := c.Holdings(ctx, yield); err != nil {
			return err
		}
	}
	return nil
}

func (all crews) drop(ctx context.Context, d Drop) error {
	return all.each(func(c *Control) error { return c.Drop(ctx, d) })
}

func (all crews) setRates(ctx context.Context, r Rates) error {
	return all.each(func(c *Control) error { return c.Rates(ctx, r) })
}

func (all crews) each(do func(*Control) error) error {
	group := errgroup.Group{}
	for _, c := range slices.All(all) {
		group.Go(func() error { return do(c) })
	}
	return group.Wait()
}
