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

// world is a hub with one agent and the two directions between them, all values: a
// test decides what is delivered, lost, doubled and in which order.
type world struct {
	contents map[string][]string // content → names of its items
	rows     map[string]*row
	hub      *Hub
	agent    *Agent
	memory   Memory
	up       []*pb.FromAgent
	down     []*pb.FromHub
	bases    map[string]Hashes

	// storing: both ends store at once; otherwise what waits is kept.
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

type row struct {
	spec   atoll.RowSpec
	status *atoll.RowStatus
}

func newWorld() *world {
	return &world{
		contents: map[string][]string{}, rows: map[string]*row{}, bases: map[string]Hashes{},
		agentStores: true, hubStores: true, holds: map[string]atoll.Manifest{}, objects: map[string]json.RawMessage{},
		gone: map[string]int64{}, trace: func(string, ...any) {},
	}
}

// manifest of a content for a row.
func (w *world) manifest(bundle string, r *row) atoll.Manifest {
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
		m.Items = append(m.Items, atoll.Rendered{Key: atoll.ItemKey{Kind: "ConfigMap", Name: n}, Object: object, Hash: "h-" + n})
	}
	return m
}

func (w *world) object(_, hash string) (json.RawMessage, bool) {
	o, ok := w.objects[hash]
	return o, ok
}

// start the agent process from what the member has.
func (w *world) start() {
	m := Memory{Gone: maps.Clone(w.gone), Seqs: map[string]int64{}}
	m.Held = append(m.Held, w.memory.Held...)
	w.agent = NewAgent(AgentOptions{Version: "v", Instance: "i", Object: w.object}, m)
}

// restart it: what is in the member counts, what was not stored is lost.
func (w *world) restart() {
	w.cut()
	w.unstored = nil
	w.memory.Held = w.agent.tree.Entries()
	for bundle, m := range w.holds {
		if m.Remove {
			w.gone[bundle] = m.Generation
			delete(w.holds, bundle)
		}
	}
	w.start()
}

func (w *world) connect() {
	w.up, w.down, w.bases = []*pb.FromAgent{w.agent.Hello()}, nil, map[string]Hashes{}
	w.frames, w.bytes, w.unclaimed, w.hub = 0, 0, nil, nil
}

func (w *world) cut() { w.up, w.down, w.hub = nil, nil, nil }

// deliverUp one frame to the hub.
func (w *world) deliverUp(f *pb.FromAgent) {
	w.frames++
	w.bytes += proto.Size(f)
	w.trace("> %s", upText(f))
	if h := f.GetHello(); h != nil {
		var wants []Entry
		for _, bundle := range slices.Sorted(maps.Keys(w.rows)) {
			if want, ok := WantOf(bundle, w.rows[bundle].spec, Reported{RowStatus: w.rows[bundle].status}); ok {
				wants = append(wants, want)
			}
		}
		hub, out := NewHub(h, wants, false)
		w.hub = hub
		w.down = append(w.down, &pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{}}})
		w.hubOutput(out)
		return
	}
	if w.hub != nil {
		w.hubOutput(w.hub.Frame(f))
	}
}

func (w *world) hubOutput(out HubOutput) {
	w.down = append(w.down, out.Frames...)
	for _, o := range out.Orders {
		w.order(o)
	}
	for _, n := range out.Needs {
		if r := w.rows[n.GetBundle()]; r != nil && r.spec.Generation == n.GetGeneration() {
			w.down = append(w.down, NewParcel(w.manifest(n.GetBundle(), r)).Answer(n)...)
		}
	}
	for _, r := range out.Reports {
		if w.hubStores {
			w.write(r)
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
		w.cut()
	}
}

func (w *world) order(o Order) {
	r := w.rows[o.Bundle]
	if r == nil {
		return
	}
	p := NewParcel(w.manifest(o.Bundle, r))
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

// write a report into its row, as the gateway does.
func (w *world) write(r *pb.Report) {
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
	v := Judge(spec, Reported{RowStatus: stored}, Reported{RowStatus: &s})
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

func (w *world) rowChanged(bundle string) {
	if w.hub == nil {
		return
	}
	if r := w.rows[bundle]; r != nil {
		if want, ok := WantOf(bundle, r.spec, Reported{RowStatus: r.status}); ok {
			w.hubOutput(w.hub.Changed(want))
			return
		}
	}
	w.hub.Gone(bundle)
	delete(w.bases, bundle)
}

// deliverDown one frame to the agent.
func (w *world) deliverDown(f *pb.FromHub) {
	w.frames++
	w.bytes += proto.Size(f)
	w.trace("< %s", downText(f))
	w.agentOutput(w.agent.Frame(f))
}

func (w *world) agentOutput(out AgentOutput) {
	w.up = append(w.up, out.Frames...)
	for _, err := range out.Rejected {
		w.trace("  rejected: %v", err)
	}
	for _, m := range out.Store {
		if w.agentStores {
			w.store(m)
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

// store a manifest in the member, and carry out its removal.
func (w *world) store(m atoll.Manifest) {
	w.holds[m.Bundle] = m
	for _, i := range m.Items {
		w.objects[i.Hash] = i.Object
	}
	w.agentOutput(w.agent.Stored(m.Bundle, m.Generation, m.Content))
	if m.Remove {
		w.report(m.Bundle, atoll.RowRemoved)
	}
}

func (w *world) report(bundle string, state atoll.RowState) {
	m := w.holds[bundle]
	w.agentOutput(w.agent.Report(bundle, atoll.RowStatus{Generation: m.Generation, Content: m.Content, State: state, Applied: true}, 0))
}

// settle delivers everything in order until nothing is under way.
func (w *world) settle() {
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

func upText(f *pb.FromAgent) string {
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

func downText(f *pb.FromHub) string {
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
			if hasObject(i.Object) {
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
