package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// simWorld is a hub with one agent and the frames under way between them. All are values: a test
// decides which frames are delivered, lost, doubled or reordered.
type simWorld struct {
	contents map[string][]string // content → names of its items
	rows     map[string]*simRow
	hub      *HubSession
	agent    *Agent
	memory   Memory
	up       []*pb.FromAgent
	down     []*pb.FromHub
	bases    map[string]Hashes

	// agentStores and hubStores: that side stores at once; otherwise it keeps what is to be
	// stored.
	agentStores, hubStores bool
	unstored               []atoll.Manifest
	unwritten              []*pb.Report

	holds     map[string]atoll.Manifest
	objects   map[string]json.RawMessage
	gone      map[string]int64
	unclaimed []string
	ahead     []string
	refused   []string
	asked     int
	frames    int
	bytes     int
	trace     func(format string, args ...any)
}

type simRow struct {
	spec   atoll.RowSpec
	status *atoll.RowStatus
}

func newSimWorld() *simWorld {
	return &simWorld{
		contents: map[string][]string{}, rows: map[string]*simRow{}, bases: map[string]Hashes{},
		agentStores: true, hubStores: true, holds: map[string]atoll.Manifest{}, objects: map[string]json.RawMessage{},
		gone: map[string]int64{}, trace: func(string, ...any) {},
	}
}

// renderManifest renders the manifest of a row.
func (w *simWorld) renderManifest(bundle string, r *simRow) atoll.Manifest {
	if r.spec.Phase == atoll.RowRemoving {
		return atoll.Manifest{Bundle: bundle, Content: "removal", Remove: true}
	}
	names, ok := w.contents[r.spec.Revision]
	if !ok {
		names = []string{r.spec.Revision}
	}
	m := atoll.Manifest{Bundle: bundle, Content: r.spec.Revision}
	for _, n := range names {
		object := json.RawMessage(`{"name":"` + n + `"}`)
		m.Items = append(m.Items, atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Name: n}, Object: object, Hash: "h-" + n})
	}
	return m
}

func (w *simWorld) storedObject(_, hash string) (json.RawMessage, bool) {
	o, ok := w.objects[hash]
	return o, ok
}

// startAgent starts the agent process from the member's state.
func (w *simWorld) startAgent() {
	m := Memory{RemovedAt: maps.Clone(w.gone), Seqs: map[string]int64{}}
	m.Held = append(m.Held, w.memory.Held...)
	w.agent = NewAgent(AgentOptions{Version: "v", Instance: "i", Object: w.storedObject}, m)
}

// restartAgent starts the agent again. State that the member stored survives; everything else is lost.
func (w *simWorld) restartAgent() {
	w.cutLink()
	w.unstored = nil
	w.memory.Held = nil
	for _, n := range w.agent.tree.sortedNodes() {
		w.memory.Held = append(w.memory.Held, n.entry)
	}
	for bundle, m := range w.holds {
		if m.Remove {
			w.gone[bundle] = m.Generation
			delete(w.holds, bundle)
		}
	}
	w.startAgent()
}

func (w *simWorld) connectAgent() {
	w.up, w.down, w.bases = []*pb.FromAgent{w.agent.BeginSession()}, nil, map[string]Hashes{}
	w.frames, w.bytes, w.unclaimed, w.hub = 0, 0, nil, nil
}

func (w *simWorld) cutLink() { w.up, w.down, w.hub = nil, nil, nil }

// deliverUp delivers one frame to the hub.
func (w *simWorld) deliverUp(f *pb.FromAgent) {
	w.frames++
	w.bytes += proto.Size(f)
	w.trace("> %s", describeUp(f))
	if h := f.GetHello(); h != nil {
		var wants []Entry
		for _, bundle := range slices.Sorted(maps.Keys(w.rows)) {
			if want, ok := WantedEntry(bundle, w.rows[bundle].spec, Reported{RowStatus: w.rows[bundle].status}); ok {
				wants = append(wants, want)
			}
		}
		hub, out := NewHubSession(h, wants, false)
		w.hub = hub
		w.down = append(w.down, &pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{}}})
		w.hubOutput(out)
		return
	}
	if w.hub != nil {
		w.hubOutput(w.hub.HandleFrame(f))
	}
}

func (w *simWorld) hubOutput(out HubOutput) {
	w.down = append(w.down, out.Frames...)
	for _, o := range out.Orders {
		w.sendOrder(o)
	}
	for _, n := range out.Needs {
		if r := w.rows[n.GetBundle()]; r != nil && r.spec.Generation == n.GetGeneration() {
			w.down = append(w.down, NewPayload(w.renderManifest(n.GetBundle(), r)).AnswerNeed(n)...)
		}
	}
	for _, r := range out.Reports {
		if w.hubStores {
			w.writeReport(r)
		} else {
			w.unwritten = append(w.unwritten, r)
		}
	}
	for _, e := range out.Ahead {
		w.ahead = append(w.ahead, fmt.Sprintf("%s@%d", e.Bundle, e.Generation))
	}
	if out.Synced {
		w.trace("  synced")
		for _, e := range out.Unclaimed {
			w.unclaimed = append(w.unclaimed, e.Bundle)
		}
	}
	if out.Refused != nil {
		w.trace("  refused %s", out.Refused.GetReason())
		w.cutLink()
	}
}

func (w *simWorld) sendOrder(o Order) {
	r := w.rows[o.Bundle]
	if r == nil {
		return
	}
	p := NewPayload(w.renderManifest(o.Bundle, r))
	held, known := w.bases[o.Bundle]
	if !known && o.Held {
		held = p.Hashes
	}
	body, err := p.Encode(held)
	if err != nil {
		panic(err)
	}
	w.bases[o.Bundle] = p.Hashes
	w.down = append(w.down, &pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: o.Bundle, Generation: r.spec.Generation, Manifest: body}}})
}

// writeReport writes a report into its row, as package delivery does.
func (w *simWorld) writeReport(r *pb.Report) {
	var s atoll.RowStatus
	if err := json.Unmarshal(r.GetStatus(), &s); err != nil {
		panic(err)
	}
	var spec *atoll.RowSpec
	var stored *atoll.RowStatus
	if row := w.rows[r.GetBundle()]; row != nil {
		spec, stored = &row.spec, row.status
	}
	s.Seq = r.GetSeq()
	v := JudgeReport(spec, Reported{RowStatus: stored}, Reported{RowStatus: &s})
	if v.Refused {
		w.refused = append(w.refused, r.GetBundle())
	}
	if v.Ahead {
		w.ahead = append(w.ahead, fmt.Sprintf("%s@%d", r.GetBundle(), s.Generation))
	}
	ack := v.Ack
	if v.Write {
		w.rows[r.GetBundle()].status, ack = &s, r.GetSeq()
		w.rowChanged(r.GetBundle())
	}
	if ack > 0 && w.hub != nil {
		w.down = append(w.down, &pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: r.GetBundle(), Seq: ack}}})
	}
}

func (w *simWorld) rowChanged(bundle string) {
	if w.hub == nil {
		return
	}
	if r := w.rows[bundle]; r != nil {
		if want, ok := WantedEntry(bundle, r.spec, Reported{RowStatus: r.status}); ok {
			w.hubOutput(w.hub.RowChanged(want))
			return
		}
	}
	w.hub.RowRemoved(bundle)
	delete(w.bases, bundle)
}

// deliverDown delivers one frame to the agent.
func (w *simWorld) deliverDown(f *pb.FromHub) {
	w.frames++
	w.bytes += proto.Size(f)
	w.trace("< %s", describeDown(f))
	w.agentOutput(w.agent.HandleFrame(f))
}

func (w *simWorld) agentOutput(out AgentOutput) {
	w.up = append(w.up, out.Frames...)
	for _, err := range out.Rejected {
		w.trace("  rejected: %v", err)
	}
	for _, m := range out.Store {
		if w.agentStores {
			w.storeManifest(m)
		} else {
			w.unstored = append(w.unstored, m)
		}
	}
	for bundle, g := range out.Forget {
		w.gone[bundle] = g
		delete(w.holds, bundle)
		w.trace("  agent forgets %s", bundle)
	}
	if out.SendAPIs {
		w.asked++
	}
}

// storeManifest stores a manifest in the member, and carries out its removal.
func (w *simWorld) storeManifest(m atoll.Manifest) {
	w.holds[m.Bundle] = m
	for _, i := range m.Items {
		w.objects[i.Hash] = i.Object
	}
	w.agentOutput(w.agent.ManifestStored(m.Bundle, m.Generation, m.Content))
	if m.Remove {
		w.reportState(m.Bundle, atoll.RowRemoved)
	}
}

func (w *simWorld) reportState(bundle string, state atoll.RowState) {
	m := w.holds[bundle]
	w.agentOutput(w.agent.ReportStatus(bundle, atoll.RowStatus{Generation: m.Generation, Content: m.Content, State: state, Applied: true}, 0))
}

// deliverAll delivers everything in order until nothing is under way.
func (w *simWorld) deliverAll() {
	for len(w.up)+len(w.down) > 0 {
		if len(w.up) > 0 {
			f := w.up[0]
			w.up = w.up[1:]
			w.deliverUp(f)
		}
		if len(w.down) > 0 {
			f := w.down[0]
			w.down = w.down[1:]
			w.deliverDown(f)
		}
	}
}

func describeUp(f *pb.FromAgent) string {
	switch v := f.GetFrame().(type) {
	case *pb.FromAgent_Hello:
		return fmt.Sprintf("hello held=%d highest=%d", v.Hello.GetHeld(), v.Hello.GetHighest())
	case *pb.FromAgent_Digest:
		var parts []string
		for _, r := range v.Digest.GetRanges() {
			switch {
			case len(r.GetChildren()) > 0:
				parts = append(parts, fmt.Sprintf("%q:children", r.GetPrefix()))
			default:
				var names []string
				for _, e := range r.GetEntries() {
					names = append(names, fmt.Sprintf("%s@%d", e.GetBundle(), e.GetGeneration()))
				}
				parts = append(parts, fmt.Sprintf("%q:[%s]", r.GetPrefix(), strings.Join(names, " ")))
			}
		}
		return "digest " + strings.Join(parts, " ")
	case *pb.FromAgent_Need:
		return fmt.Sprintf("need %s@%d %v", v.Need.GetBundle(), v.Need.GetGeneration(), v.Need.GetHashes())
	case *pb.FromAgent_Stored:
		return fmt.Sprintf("stored %s@%d %s", v.Stored.GetBundle(), v.Stored.GetGeneration(), v.Stored.GetContent())
	case *pb.FromAgent_Report:
		var s atoll.RowStatus
		if json.Unmarshal(v.Report.GetStatus(), &s) != nil {
			return "report that cannot be read"
		}
		return fmt.Sprintf("report %s@%d %s seq=%d", v.Report.GetBundle(), s.Generation, s.State, v.Report.GetSeq())
	}
	return "unknown"
}

func describeDown(f *pb.FromHub) string {
	switch v := f.GetFrame().(type) {
	case *pb.FromHub_Welcome:
		return "welcome"
	case *pb.FromHub_DigestQuery:
		return fmt.Sprintf("query %q", v.DigestQuery.GetPrefixes())
	case *pb.FromHub_Upsert:
		m, err := decodeManifest(v.Upsert)
		if err != nil {
			return "upsert that cannot be read"
		}
		var items []string
		for _, i := range m.Items {
			if isObjectPresent(i.Object) {
				items = append(items, i.Key.Name)
			} else {
				items = append(items, "("+i.Key.Name+")")
			}
		}
		return fmt.Sprintf("upsert %s@%d %s %v", v.Upsert.GetBundle(), v.Upsert.GetGeneration(), m.Content, items)
	case *pb.FromHub_Objects:
		return fmt.Sprintf("objects %s@%d %v", v.Objects.GetBundle(), v.Objects.GetGeneration(), slices.Sorted(maps.Keys(v.Objects.GetObjects())))
	case *pb.FromHub_ReportStored:
		return fmt.Sprintf("report-stored %s seq=%d", v.ReportStored.GetBundle(), v.ReportStored.GetSeq())
	case *pb.FromHub_Ask:
		return fmt.Sprintf("ask reports=%v apis=%t", v.Ask.GetReports(), v.Ask.GetApis())
	}
	return "unknown"
}
