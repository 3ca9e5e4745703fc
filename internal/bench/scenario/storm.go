package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// stormGroups of the fleet, with one application each.
	stormGroups = 10
	// cutFor is how long all links are gone.
	cutFor = 5 * time.Second
	// backWithin is when all agents have to be back.
	backWithin = 90 * time.Second
	// flapPerMinute is the share of agents that drop each minute.
	flapPerMinute = 0.05
)

// storm takes the hub away from all agents at once, by cutting all links and then by
// killing the hub, and sees them come back together.
func storm(ctx context.Context, s *stage) error {
	apps, err := s.stormFleet(ctx)
	if err != nil {
		return err
	}
	if err := s.cutAll(ctx); err != nil {
		return err
	}
	if err := s.tellTruth(ctx, time.Minute, apps); err != nil {
		return err
	}
	return s.killUnderAll(ctx)
}

// stormFleet opens the stage with an application in each cluster, settled.
func (s *stage) stormFleet(ctx context.Context) ([]app, error) {
	if err := s.open(ctx, crowd{count: s.scaled(10_000, 2*stormGroups), groups: stormGroups}); err != nil {
		return nil, err
	}
	apps := s.apps("storm", stormGroups)
	if err := s.deliver(ctx, "applying an application per group", apps); err != nil {
		return nil, err
	}
	_, err := s.settled(ctx, quiet, 5*time.Minute)
	return apps, err
}

// cutAll cuts all links; the hub goes on.
func (s *stage) cutAll(ctx context.Context) error {
	p, before, err := s.probeQuiet(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("links cut")
	if err := s.fleets[0].control.Drop(ctx, fleet.Drop{Share: 1, For: cutFor}); err != nil {
		return err
	}
	err = s.awaitBack(ctx, "links_cut", before.stats.Connects, time.Now().Add(cutFor))
	own := p.stop("calls_while_links_return")
	if err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := s.cost("links_cut", before, after, own)
	// Being away for seconds is no news.
	s.report.AtMost("API writes while all agents return", writes.Total(), 10, "requests")
	return nil
}

// killUnderAll kills the hub under all agents and starts it again.
func (s *stage) killUnderAll(ctx context.Context) error {
	p, err := s.newProbe(ctx)
	if err != nil {
		return err
	}
	before, err := s.stats(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("hub killed")
	if err := s.kill(ctx, s.hubs[0].Spec); err != nil {
		return err
	}
	// Agents notice, and begin to dial in vain.
	if err := pause(ctx, cutFor); err != nil {
		return err
	}
	begin := time.Now()
	serving, err := s.startHub(ctx)
	if err != nil {
		return err
	}
	s.report.Time("hub_restart", serving)
	p.start(ctx)
	err = s.awaitBack(ctx, "hub_killed", before.Connects, begin)
	own := p.stop("calls_while_agents_return_to_a_new_hub")
	if err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := after.metrics.Writes().Without(own)
	s.report.Count("hub_killed_api_writes", writes.Total(), "requests")
	s.report.Note("API writes of the hub that was started under all agents: %s", writes)
	s.report.AtMost("API writes of a hub that all agents return to", writes.Total(), 50, "requests")
	return nil
}

// awaitBack waits until every agent has connected again, and reports how long that took since
// the hub could be reached. connects is the number of connects before the agents lost the hub: agents that
// return faster than this function reads their state are counted too.
func (s *stage) awaitBack(ctx context.Context, phase string, connects int64, since time.Time) error {
	s.Progress.Step("all agents return", s.fleets[0].count)
	err := until(ctx, "all agents return", 100*time.Millisecond, 10*time.Minute, func(ctx context.Context) (bool, error) {
		stats, err := s.stats(ctx)
		if err != nil {
			return false, err
		}
		s.Progress.Reach(stats.Connected)
		back := stats.Connects-connects >= int64(stats.Agents) && stats.Connected == stats.Agents
		return back && stats.Unacknowledged == 0, nil
	})
	if err != nil {
		return err
	}
	took := time.Since(since)
	s.report.Mark("all back")
	s.report.Time(phase+"_until_all_back", took)
	s.report.Within(fmt.Sprintf("all agents back (%s)", phase), took.Seconds(), backWithin.Seconds(), "s")
	return nil
}

// flap lets agents drop all the time while applications change.
func flap(ctx context.Context, s *stage) error {
	apps, err := s.stormFleet(ctx)
	if err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	rows, err := s.rowsNow(ctx)
	if err != nil {
		return err
	}
	p, before, err := s.probeQuiet(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("flapping")
	// Some are away for longer than it takes to be called Unknown.
	if err := s.rates(ctx, fleet.Rates{OfflinePerMinute: flapPerMinute, OfflineFor: 45 * time.Second}); err != nil {
		return err
	}
	begin := time.Now()
	// Half of the applications change, the others have to be left alone.
	changing, still := apps[:len(apps)/2], apps[len(apps)/2:]
	changes, err := s.changeWhileFlapping(ctx, changing)
	if err != nil {
		return err
	}
	flapped := time.Since(begin)
	own := p.stop("calls_while_flapping")
	s.report.Mark("flapping ends")
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return err
	}
	// Some have drawn to be away for minutes, and are not missed before they are Unknown.
	if err := s.awaitAgents(ctx, s.fleets[0], "all agents return", 10*time.Minute, func(t fleet.Stats) int { return t.Connected }); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	own["APPLY deployments"] = float64(changes)
	s.cost("flap", before, after, own)
	outages, least := float64(after.stats.Outages-before.stats.Outages), fewest(flapPerMinute*float64(s.fleets[0].count)*flapped.Minutes())
	s.report.Count("outages", outages, "outages")
	s.report.Check("agents dropped as often as they were told to", outages >= least, "%.0f outages, at least %.0f", outages, least)
	s.report.Check("no cluster was being left", b.removing == 0, "at most %d rows of a Bundle were Removing", b.removing)
	if err := s.compareRows(ctx, rows, still, nil); err != nil {
		return err
	}
	return s.tellTruth(ctx, 2*time.Minute, apps)
}

// fewest of something of which there are to be so many by chance: three standard
// deviations less, and one at least.
func fewest(expected float64) float64 {
	return max(1, math.Floor(expected-3*math.Sqrt(expected)))
}

// changeWhileFlapping edits one application after the other for a while, and gives
// how many edits that were.
func (s *stage) changeWhileFlapping(ctx context.Context, apps []app) (int, error) {
	span := 3 * time.Minute
	if s.Scale < 0.5 {
		span = time.Minute
	}
	s.Progress.Step("agents drop while applications change", int(span.Seconds()))
	begin := time.Now()
	var reached measure.Distribution
	for n := 0; ; n++ {
		if since := time.Since(begin); since >= span {
			s.report.Distribution("change_to_connected_clusters_while_flapping", reached.Values())
			return n, nil
		}
		a := &apps[n%len(apps)]
		a.image = fmt.Sprintf("registry.example/app:flap.%d", n)
		upserts, err := s.stats(ctx)
		if err != nil {
			return n, err
		}
		if err := s.applyDeployment(ctx, *a); err != nil {
			return n, err
		}
		applied := time.Now()
		// Nine of ten clusters are connected at any time, and have to get it.
		want := upserts.Upserts + int64(s.clustersOf(*a)*8/10)
		if err := until(ctx, "connected clusters get a change", 50*time.Millisecond, 30*time.Second, func(ctx context.Context) (bool, error) {
			now, err := s.stats(ctx)
			return now.Upserts >= want, err
		}); err != nil {
			return n, err
		}
		reached.Add(time.Since(applied))
		s.Progress.Reach(int(time.Since(begin).Seconds()))
		if err := pause(ctx, 2*time.Second); err != nil {
			return n, err
		}
	}
}
