package fleet

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// ProcessCommand is the hidden command of the processes that a fleet starts.
const ProcessCommand = "fleet-crew"

// ProfileFlag is passed on to these processes if the command has it.
const ProfileFlag = "profile-dir"

// NewFleetCommands returns the command `fleet` and the hidden command of its processes.
func NewFleetCommands() []*cobra.Command {
	o := Options{}
	var stream, quiet bool
	var profile string
	cmd := &cobra.Command{
		Use:   "fleet --dir DIR --agents N [--stream | --checkin 15m]",
		Short: "Simulate agents by the thousand, over the real protocol with real identities",
		Long: `Simulate agents by the thousand: each joins with a key of its own, holds what the
hub orders, reports health after a drawn delay, fails, restarts and goes offline at
drawn rates, until the command is ended. Only the clusters behind them are imagined.

A hub is started in DIR if none serves there, and ends with the command. Keys and
certificates are kept in DIR: the same fleet, started again, does not join again.
Agent I is named PREFIX-I, and labelled group=gK, K being I modulo the groups.

DIR/fleet-PREFIX.sock takes orders; scenarios of "atoll-lab bench" give them.`,
		Example: `  atoll-lab fleet --dir /tmp/lab --agents 1000 --groups 10
  atoll-lab fleet --dir /tmp/lab --agents 100000 --checkin 15m --profile edge`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rates, ok := RateProfiles[profile]
			if !ok {
				return fmt.Errorf("--profile %s is unknown; there are %s", profile, strings.Join(slices.Sorted(maps.Keys(RateProfiles)), ", "))
			}
			if stream && o.CheckIn > 0 {
				return fmt.Errorf("agents hold their streams or check in: give --stream or --checkin")
			}
			o.Rates = rates
			if !quiet {
				o.Progress = cmd.ErrOrStderr()
			}
			if f := cmd.Flags().Lookup(ProfileFlag); f != nil {
				o.ProfileDir = f.Value.String()
			}
			return RunSimulatedFleet(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", os.Getenv("ATOLL_LAB_DIR"), "the lab's directory; default is $ATOLL_LAB_DIR")
	f.IntVar(&o.Agents, "agents", 100, "number of agents")
	f.IntVar(&o.Groups, "groups", 1, "number of groups that agents are labelled with, in turn")
	f.StringVar(&o.Prefix, "prefix", DefaultPrefix, "what the names of agents begin with")
	f.BoolVar(&stream, "stream", false, "hold the stream (the default)")
	f.DurationVar(&o.CheckIn, "checkin", 0, "check in so often instead")
	f.StringVar(&profile, "profile", "still", "rates of what befalls the clusters: still, cloud or edge")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of all draws")
	f.BoolVar(&o.ShapeLinks, "link", false, "shape links: 50 ms round trip, 0.02 % loss, 20 Mbit/s")
	f.Float64Var(&o.JoinRate, "rate", 0, "joins per second at most; default: as fast as the hub takes them")
	f.IntVar(&o.JoinersAtOnce, "joiners", 64, "joins at a time")
	f.IntVar(&o.DialersAtOnce, "dialers", 256, "dials at a time, TLS included")
	f.IntVar(&o.Processes, "processes", 0, "processes to spread the agents over; default: as few as can hold them")
	f.StringArrayVar(&o.HubArgs, "hub-arg", nil, "argument for a hub that is started; may be repeated")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing while it runs")
	crew := &cobra.Command{
		Use: ProcessCommand, Hidden: true, Args: cobra.NoArgs, Short: "One process of a simulated fleet",
		RunE: func(cmd *cobra.Command, _ []string) error { return RunSimulatorProcess(cmd.Context(), cmd.InOrStdin()) },
	}
	return []*cobra.Command{cmd, crew}
}

// progressEvery is the time between two progress lines while the fleet changes.
const progressEvery = 2 * time.Second

// printProgress prints the state of the fleet until ctx ends.
func printProgress(ctx context.Context, out io.Writer, control *SimulatorClient) error {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	printed := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s, err := control.ReadStats(ctx)
		if err != nil {
			continue // the simulator has not started, or it has ended
		}
		line := fmt.Sprintf("%d of %d joined, %d connected, %d rows held, %d healthy", s.Joined, s.Agents, s.Connected, s.Rows, s.RowsHealthy)
		if s.CheckIns > 0 {
			line += fmt.Sprintf(", %d check-ins", s.CheckIns)
		}
		if s.Refusals > 0 {
			line += fmt.Sprintf(", %d refusals (%s)", s.Refusals, s.LastRefusal)
		}
		if s.Failures > 0 {
			line += fmt.Sprintf(", %d failures (%s)", s.Failures, s.LastFailure)
		}
		if line == printed {
			continue
		}
		printed = line
		if _, err := fmt.Fprintf(out, "%s  %s; %.1f KB resident per agent\n", time.Now().Format(time.TimeOnly), line, residentBytes(s)/1e3/float64(s.Agents)); err != nil {
			return err
		}
	}
}

// residentBytes returns the resident bytes of all processes of a simulator. Pages of the
// program itself, which the processes share, count once.
func residentBytes(s Stats) float64 {
	sum, most := 0.0, 0.0
	for _, pid := range s.PIDs {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		var size, pages, shared float64
		if err == nil {
			_, _ = fmt.Sscan(string(text), &size, &pages, &shared) // a process that has ended counts as zero
		}
		sum += pages - shared
		most = max(most, shared)
	}
	return (sum + most) * float64(os.Getpagesize())
}
