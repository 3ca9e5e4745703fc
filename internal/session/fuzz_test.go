package session

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// TestFramesInAnyOrder plays random changes, faults and orders of delivery, and then heals all
// faults. Both sides must agree at the end, and nothing may be gone without a removal.
func TestFramesInAnyOrder(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 20+r.IntN(200))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		if err := playRandomScript(script); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzAnyOrder is TestFramesInAnyOrder with the fuzzer's choices.
func FuzzAnyOrder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte("a row, a cut, a restart and what follows"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			return
		}
		if err := playRandomScript(script); err != nil {
			t.Fatal(err)
		}
	})
}

// randomWorld plays a world by random bytes and checks the invariants.
type randomWorld struct {
	*simWorld
	generations map[string]int64
	violations  []string
	lastHeld    map[string]atoll.Manifest // what the member held at the last look
}

func playRandomScript(script []byte) error {
	c := &randomWorld{simWorld: newSimWorld(), generations: map[string]int64{}, lastHeld: map[string]atoll.Manifest{}}
	c.contents = map[string][]string{"c0": {"x"}, "c1": {"x", "y"}, "c2": {"y", "z"}, "c3": {}}
	c.startAgent()
	c.connectAgent()
	for i := 0; i+1 < len(script); i += 2 {
		c.applyStep(script[i], int(script[i+1]))
		c.checkInvariants()
	}
	if err := c.healAndCompare(); err != nil {
		return err
	}
	if len(c.violations) > 0 {
		return fmt.Errorf("%v", c.violations)
	}
	return nil
}

func (c *randomWorld) applyStep(op byte, arg int) {
	bundle := fmt.Sprintf("b%d", arg%5)
	switch op % 16 {
	case 0, 1: // a row comes or changes
		c.generations[bundle]++
		c.setRow(bundle, fmt.Sprintf("c%d", arg/5%4), atoll.RowActive)
	case 2: // a row becomes Removing
		if c.rows[bundle] != nil {
			c.generations[bundle]++
			c.setRow(bundle, c.rows[bundle].spec.Revision, atoll.RowRemoving)
		}
	case 3: // a row whose removal is done goes; another is given up once in a while
		if r := c.rows[bundle]; r != nil && (c.isRemoved(r) || arg > 240) {
			delete(c.rows, bundle)
			c.rowChanged(bundle)
		}
	case 4, 5: // a status changes
		if m, ok := c.holds[bundle]; ok && !m.Remove {
			c.reportState(bundle, []atoll.RowState{atoll.RowProgressing, atoll.RowReady, atoll.RowDegraded}[arg/5%3])
		}
	case 6:
		c.cutLink()
		c.connectAgent()
	case 7:
		c.restartAgent()
		c.connectAgent()
	case 8:
		c.agentStores = !c.agentStores
		if c.agentStores {
			waiting := c.unstored
			c.unstored = nil
			for _, m := range waiting {
				c.storeLatest(m)
			}
		}
	case 9:
		c.hubStores = !c.hubStores
		if c.hubStores {
			waiting := c.unwritten
			c.unwritten = nil
			for _, r := range waiting {
				c.writeReport(r)
			}
		}
	case 10: // a frame comes twice
		if len(c.up) > 0 && c.up[0].GetHello() == nil {
			c.deliverUp(c.up[arg%len(c.up)])
		}
		if len(c.down) > 0 {
			c.deliverDown(c.down[arg%len(c.down)])
		}
	case 11: // frames change places
		if n := len(c.down); n > 1 {
			i, j := arg%n, arg/7%n
			c.down[i], c.down[j] = c.down[j], c.down[i]
		}
	default: // deliver
		if len(c.up) > 0 {
			f := c.up[0]
			c.up = c.up[1:]
			c.deliverUp(f)
		}
		if len(c.down) > 0 {
			f := c.down[0]
			c.down = c.down[1:]
			c.deliverDown(f)
		}
	}
}

// storeLatest stores one waiting manifest, as an agent does that stores one bundle after
// another.
func (c *randomWorld) storeLatest(m atoll.Manifest) {
	if held, ok := c.holds[m.Bundle]; !ok || held.Generation <= m.Generation {
		c.storeManifest(m)
	}
}

func (c *randomWorld) isRemoved(r *simRow) bool {
	return r.spec.Phase == atoll.RowRemoving && r.status != nil && r.status.State == atoll.RowRemoved && r.status.Generation == r.spec.Generation
}

func (c *randomWorld) setRow(bundle, content string, phase atoll.RowPhase) {
	r := c.rows[bundle]
	if r == nil {
		r = &simRow{}
		c.rows[bundle] = r
	}
	r.spec = atoll.RowSpec{UID: "u", Generation: c.generations[bundle], Revision: content, Phase: phase}
	c.rowChanged(bundle)
}

// checkInvariants checks what the member holds: generations only grow, and only a removal takes
// anything away.
func (c *randomWorld) checkInvariants() {
	for bundle, was := range c.lastHeld {
		is, ok := c.holds[bundle]
		switch {
		case !ok && !was.Remove && c.gone[bundle] <= was.Generation:
			c.violations = append(c.violations, bundle+" is gone without a removal")
		case ok && is.Generation < was.Generation:
			c.violations = append(c.violations, fmt.Sprintf("%s went back from generation %d to %d", bundle, was.Generation, is.Generation))
		}
	}
	c.lastHeld = maps.Clone(c.holds)
}

// healAndCompare delivers everything and compares both sides.
func (c *randomWorld) healAndCompare() error {
	c.hubStores, c.unwritten = true, nil
	c.agentStores = true
	for _, m := range c.unstored {
		c.storeLatest(m)
	}
	c.unstored = nil
	c.connectAgent()
	c.deliverAll()
	for _, bundle := range slices.Sorted(maps.Keys(c.holds)) {
		if !c.holds[bundle].Remove {
			c.reportState(bundle, atoll.RowReady)
		}
	}
	c.deliverAll()
	c.checkInvariants()
	for bundle, r := range c.rows {
		held, ok := c.holds[bundle]
		switch {
		case r.spec.Phase == atoll.RowRemoving && (ok || !c.isRemoved(r)):
			return fmt.Errorf("%s is not removed: held %v, status %+v", bundle, ok, r.status)
		case r.spec.Phase == atoll.RowActive && (!ok || held.Generation != r.spec.Generation || held.Content != r.spec.Revision):
			return fmt.Errorf("%s: the member holds generation %d of %q, the row wants %d of %q", bundle, held.Generation, held.Content, r.spec.Generation, r.spec.Revision)
		case r.spec.Phase == atoll.RowActive && (r.status == nil || r.status.Generation != r.spec.Generation || r.status.State != atoll.RowReady):
			return fmt.Errorf("%s: the row's status is %+v", bundle, r.status)
		}
	}
	if len(c.ahead) > 0 {
		return fmt.Errorf("rows are behind: %v", c.ahead)
	}
	var orphans int
	for bundle := range c.holds {
		if c.rows[bundle] == nil {
			orphans++
		}
	}
	c.connectAgent()
	c.deliverAll()
	if orphans == 0 && c.frames != 2 {
		return fmt.Errorf("a reconnect of equal ends took %d frames", c.frames)
	}
	if len(c.unclaimed) != orphans {
		return fmt.Errorf("unclaimed %v, but %d bundles have no row", c.unclaimed, orphans)
	}
	return nil
}

// FuzzHubFrames passes arbitrary bytes of an agent to the hub's side.
func FuzzHubFrames(f *testing.F) {
	for _, m := range []*pb.FromAgent{
		{Frame: &pb.FromAgent_Digest{Digest: &pb.Digest{Ranges: []*pb.Range{{Prefix: "", Children: make([][]byte, 16)}}}}},
		{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: "b0", Generation: 1 << 60}}},
		{Frame: &pb.FromAgent_Need{Need: &pb.Need{Bundle: "b0", Hashes: []string{"h"}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint32(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, held uint32) {
		var m pb.FromAgent
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		hub, out := NewHubSession(&pb.Hello{Held: held}, []Entry{{Bundle: "b0", Generation: 1}}, false)
		for range 40 {
			var asked []string
			for _, f := range out.Frames {
				asked = append(asked, f.GetDigestQuery().GetPrefixes()...)
			}
			if d := m.GetDigest(); d != nil && len(asked) > 0 && len(d.GetRanges()) > 0 {
				answer := &pb.Digest{}
				for _, p := range asked { // the same lie at every level
					r := proto.Clone(d.GetRanges()[0]).(*pb.Range)
					r.Prefix = p
					answer.Ranges = append(answer.Ranges, r)
				}
				out = hub.HandleFrame(&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: answer}})
				continue
			}
			out = hub.HandleFrame(&m)
		}
	})
}

// FuzzAgentFrames passes arbitrary bytes of a hub to the agent's side.
func FuzzAgentFrames(f *testing.F) {
	for _, manifest := range []string{
		`{"items":[{"hash":"h"}]}`, assessedManifest(`{"feedback":[{"name":"a","jsonPath":"` + strings.Repeat("[?(@.a", 1000) + `","type":"String"}]}`),
		`{"assessments":[{"completion":"true"},{"health":[{"expression":"false"}]}],"items":[{"key":"/A//a","hash":"h","assessed":[0,1]},{"key":"/A//b","assessed":[7,-1]}]}`,
		assessedManifest(`{"health":[` + repeatList(`{}`, 1000) + `],"completion":"` + longText(3000) + `"}`),
	} {
		b, err := proto.Marshal(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: "b", Generation: 1, Manifest: []byte(manifest)}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.FromHub
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		a := NewAgent(AgentOptions{}, Memory{Held: []Entry{{Bundle: "b", Generation: 2, Content: "c"}}})
		a.BeginSession()
		out := a.HandleFrame(&m)
		for _, s := range out.Store {
			if s.Bundle == "b" && s.Generation < 2 {
				t.Errorf("stores generation %d over 2", s.Generation)
			}
		}
		a.HandleFrame(&m)
	})
}
