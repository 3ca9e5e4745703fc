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

// RateProfiles are named rates of fleets.
var RateProfiles = map[string]FaultRates{
	// edge: shops and cars, with unstable links and failing hardware.
	"edge": {FailuresPerHour: 0.05, RestartsPerHour: 0.05, OfflinePerMinute: 0.002, OfflineFor: 2 * time.Minute, HealthDelay: 4 * time.Second},
	// cloud: data centres.
	"cloud": {FailuresPerHour: 0.01, RestartsPerHour: 0.01, OfflinePerMinute: 0.0001, OfflineFor: 20 * time.Second, HealthDelay: time.Second},
	// still: no faults and no changes.
	"still": {},
}

const (
	// agentsPerProcess bounds the agents of one process: each stream takes one of the
	// 20,000 files that it may open.
	streamsPerProcess  = 15_000
	checkInsPerProcess = 50_000
	// These trade time of the simulator for its memory. Agents on streams have mostly live memory.
	// Agents that check in leave mostly garbage of finished sessions.
	gcPercentStreams, gcPercentCheckIns = 40, 200
)

// Options are the options of a fleet.
type Options struct {
	// Dir is the directory of the lab.
	Dir string
	// Prefix is the prefix of names; default DefaultPrefix.
	Prefix string
	Agents int
	// Groups is the number of group labels; default 1.
	Groups int
	// CheckIn is the check-in interval; 0 holds the stream.
	CheckIn time.Duration
	Rates   FaultRates
	Seed    uint64
	// ShapeLinks gives links the delays of a long line.
	ShapeLinks bool
	// JoinRate limits joins per second; 0 means no limit.
	JoinRate float64
	// JoinersAtOnce and DialersAtOnce bound concurrent joins and dials; the command
	// defaults to 64 and 256.
	JoinersAtOnce, DialersAtOnce int
	// Processes is the number of processes; 0 means as many as needed.
	Processes int
	// HubArgs are arguments of a hub that the fleet starts.
	HubArgs []string
	// ProfileDir receives the profiles of further processes; empty means none.
	ProfileDir string
	// Progress receives progress lines; nil means none.
	Progress io.Writer
}

// RunSimulatedFleet runs a fleet until ctx ends.
func RunSimulatedFleet(ctx context.Context, o Options) error {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return errors.Join(errors.New("give the directory of the lab by --dir"), err)
	}
	if err := o.validateOptions(); err != nil {
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
	invited, err := createTokens(ctx, config, o)
	if err != nil {
		return err
	}
	whole := processConfig{
		Dir: dir, Prefix: o.Prefix, Agents: o.Agents, To: o.Agents, Hubs: invited.hubs, CAHash: invited.caHash, CA: config.CAData,
		Tokens: invited.tokens, CheckIn: o.CheckIn, Seed: o.Seed, Rates: o.Rates, JoinRate: o.JoinRate,
		Joiners: o.JoinersAtOnce, Dialers: o.DialersAtOnce, ShapeLinks: o.ShapeLinks, Socket: ControlSocketPath(dir, o.Prefix), RefusedPause: 10 * time.Minute,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if o.Progress != nil {
		group.Go(func() error { return printProgress(ctx, o.Progress, NewSimulatorClient(dir, o.Prefix)) })
	}
	group.Go(func() error { return own.waitForHubExit(ctx) })
	if n := o.processCount(); n > 1 {
		group.Go(func() error { return runProcesses(ctx, whole, n, o.ProfileDir) })
	} else {
		group.Go(func() error { return runInThisProcess(ctx, whole) })
	}
	return group.Wait()
}

// mostAgents exceeds the number that the memory of one machine holds.
const mostAgents = 1_000_000

// validateOptions checks the options of a user before anything starts.
func (o Options) validateOptions() error {
	switch {
	case o.Agents < 1 || o.Agents > mostAgents:
		return fmt.Errorf("--agents is %d: a fleet has from 1 to %d", o.Agents, mostAgents)
	case o.Groups < 1 || o.JoinersAtOnce < 1 || o.DialersAtOnce < 1:
		return fmt.Errorf("--groups, --joiners and --dialers are at least 1, not %d, %d and %d", o.Groups, o.JoinersAtOnce, o.DialersAtOnce)
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

func (o Options) processCount() int {
	most := streamsPerProcess
	if o.CheckIn > 0 {
		most = checkInsPerProcess
	}
	return max(o.Processes, (o.Agents+most-1)/most)
}

// runInThisProcess simulates in this process.
func runInThisProcess(ctx context.Context, c processConfig) error {
	percent := gcPercentStreams
	if c.CheckIn > 0 {
		percent = gcPercentCheckIns
	}
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	s, err := newSimulator(c)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// RunSimulatorProcess runs one process of several. Its configuration comes as JSON, and it ends with
// its input.
func RunSimulatorProcess(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var c processConfig
	d := json.NewDecoder(in)
	if err := d.Decode(&c); err != nil {
		return fmt.Errorf("what this process is to simulate: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the starter ends
		cancel()
	}()
	return runInThisProcess(ctx, c)
}

// processGroup are all processes of a simulator.
type processGroup []*SimulatorClient

// runProcesses simulates in several processes, which end with this one.
func runProcesses(ctx context.Context, whole processConfig, n int, profiles string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	command := []string{program, ProcessCommand}
	if profiles != "" {
		command = append(command, "--"+ProfileFlag, profiles)
	}
	group, ctx := errgroup.WithContext(ctx)
	var all processGroup
	for i := range n {
		c := whole
		c.Process, c.From, c.To = i, whole.Agents*i/n, whole.Agents*(i+1)/n
		c.JoinRate, c.Joiners, c.Dialers = whole.JoinRate/float64(n), max(1, whole.Joiners/n), max(1, whole.Dialers/n)
		c.Socket = ControlSocketPath(whole.Dir, fmt.Sprintf("%s.%d", whole.Prefix, i))
		all = append(all, NewSimulatorClient(whole.Dir, fmt.Sprintf("%s.%d", whole.Prefix, i)))
		group.Go(func() error { return runChildProcess(ctx, command, c) })
	}
	group.Go(func() error { return serveControl(ctx, whole.Socket, all) })
	return group.Wait()
}

func runChildProcess(ctx context.Context, command []string, c processConfig) error {
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
	cmd.Cancel = theirs.Close // the process ends with its input
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

func (all processGroup) readStats(ctx context.Context) (Stats, error) {
	sum := Stats{PID: os.Getpid(), PIDs: []int{os.Getpid()}}
	for _, c := range all {
		s, err := c.ReadStats(ctx)
		if err != nil {
			return sum, err
		}
		sum.add(s)
	}
	sum.JoinTime, sum.ConnectTime = sum.JoinTime.withPercentiles(), sum.ConnectTime.withPercentiles()
	return sum, nil
}

// add adds the figures of another process.
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
	s.JoinTime.mergeFrom(o.JoinTime)
	s.ConnectTime.mergeFrom(o.ConnectTime)
	s.LastRefusal, s.LastFailure = max(s.LastRefusal, o.LastRefusal), max(s.LastFailure, o.LastFailure)
}

func (all processGroup) forEachAgentState(ctx context.Context, yield func(AgentState) error) error {
	for _, c := range all {
		if err := c.ForEachAgentState(ctx, yield); err != nil {
			return err
		}
	}
	return nil
}

func (all processGroup) dropLinks(ctx context.Context, d DropOrder) error {
	return all.forEachProcess(func(c *SimulatorClient) error { return c.DropLinks(ctx, d) })
}

func (all processGroup) setRates(ctx context.Context, r FaultRates) error {
	return all.forEachProcess(func(c *SimulatorClient) error { return c.SetRates(ctx, r) })
}

func (all processGroup) forEachProcess(do func(*SimulatorClient) error) error {
	group := errgroup.Group{}
	for _, c := range slices.All(all) {
		group.Go(func() error { return do(c) })
	}
	return group.Wait()
}
