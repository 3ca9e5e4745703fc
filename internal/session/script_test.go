package session

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

var update = flag.Bool("update", false, "write what the scripts show into testdata")

// TestScripts plays testdata/*.txtar: section "script" shows what happens, section
// "trace" what must be seen. The comment of each file shows what it is about; the
// commands are in (*player).do.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(archive.Files[0].Data))
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: "trace", Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(archive.Files) != 2 || got != string(archive.Files[1].Data) {
				t.Errorf("the trace is not as in %s (see it with -update and git diff):\n%s", file, got)
			}
		})
	}
}

type scriptPlayer struct {
	*simWorld
	t   *testing.T
	out strings.Builder
}

func playScript(t *testing.T, script string) string {
	p := &scriptPlayer{simWorld: newSimWorld(), t: t}
	p.trace = func(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }
	for _, line := range strings.Split(script, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			fmt.Fprintf(&p.out, "%s\n", strings.Join(words, " "))
			p.runCommand(words[0], words[1:])
		}
	}
	return p.out.String()
}

func (p *scriptPlayer) runCommand(command string, args []string) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch command {
	case "content": // NAME ITEM...: what a content consists of
		p.contents[arg(0)] = args[1:]
	case "row": // BUNDLE GENERATION CONTENT [removing]: the hub wants it
		p.setRow(arg(0), p.parseNumber(arg(1)), arg(2), arg(3))
	case "norow": // BUNDLE
		delete(p.rows, arg(0))
		p.rowChanged(arg(0))
	case "hold": // BUNDLE GENERATION CONTENT: the member has it before the agent starts
		p.holdBundle(arg(0), p.parseNumber(arg(1)), arg(2))
	case "many": // N: bundles b0…, rows and held alike
		for i := range p.parseNumber(arg(0)) {
			p.setRow(fmt.Sprintf("b%d", i), 1, "c", "")
			p.holdBundle(fmt.Sprintf("b%d", i), 1, "c")
			p.rows[fmt.Sprintf("b%d", i)].status = &atoll.RowStatus{Generation: 1, Content: "c"}
		}
	case "start":
		p.startAgent()
	case "restart":
		p.restartAgent()
	case "connect":
		p.connectAgent()
	case "cut":
		p.cutLink()
	case "settle":
		p.deliverAll()
	case "quiet-settle": // and only count
		trace := p.trace
		p.trace = func(string, ...any) {}
		p.deliverAll()
		p.trace = trace
	case "agent-stores": // on|off
		p.agentStores = arg(0) == "on"
		waiting := p.unstored
		if p.agentStores {
			p.unstored = nil
			for _, m := range waiting {
				p.storeManifest(m)
			}
		}
	case "hub-stores": // on|off
		p.hubStores = arg(0) == "on"
		waiting := p.unwritten
		if p.hubStores {
			p.unwritten = nil
			for _, r := range waiting {
				p.writeReport(r)
			}
		}
	case "report": // BUNDLE STATE
		p.reportState(arg(0), atoll.RowState(arg(1)))
	case "forget-status": // BUNDLE: the hub's store lost it
		p.rows[arg(0)].status = nil
	case "unknown-frames":
		p.deliverUp(&pb.FromAgent{})
		p.deliverDown(&pb.FromHub{})
	case "up", "down":
		p.tamperFrames(command, args)
	case "show":
		p.printState()
	default:
		p.t.Fatalf("unknown command %q", command)
	}
}

// tamperFrames drops, doubles, reorders or delivers frames under way, as in "up drop 0", "down
// double 1", "down swap 0" or "up deliver 2".
func (p *scriptPlayer) tamperFrames(direction string, args []string) {
	i := int(p.parseNumber(args[1]))
	if direction == "up" {
		p.up = tamperQueue(p.up, args[0], i, p.deliverUp)
	} else {
		p.down = tamperQueue(p.down, args[0], i, p.deliverDown)
	}
}

func tamperQueue[F any](queue []F, how string, i int, deliver func(F)) []F {
	f := queue[i]
	switch how {
	case "drop":
		return slices.Delete(queue, i, i+1)
	case "double":
		return slices.Insert(queue, i, f)
	case "swap":
		queue[i], queue[i+1] = queue[i+1], queue[i]
	case "again": // deliver a copy, and leave the frame where it is
		deliver(f)
	}
	return queue
}

func (p *scriptPlayer) setRow(bundle string, generation int64, content, phase string) {
	r := p.rows[bundle]
	if r == nil {
		r = &simRow{}
		p.rows[bundle] = r
	}
	r.spec = atoll.RowSpec{UID: "u", Generation: generation, Revision: content, Phase: atoll.RowActive}
	if phase == "removing" {
		r.spec.Phase = atoll.RowRemoving
	}
	p.rowChanged(bundle)
}

func (p *scriptPlayer) holdBundle(bundle string, generation int64, content string) {
	m := p.renderManifest(bundle, &simRow{spec: atoll.RowSpec{Revision: content}})
	m.Generation = generation
	p.holds[bundle] = m
	for _, i := range m.Items {
		p.objects[i.Hash] = i.Object
	}
	p.memory.Held = append(p.memory.Held, Entry{bundle, generation, content, StatusHash(atoll.RowStatus{Generation: generation, Content: content})})
}

func (p *scriptPlayer) printState() {
	for _, b := range slices.Sorted(maps.Keys(p.holds)) {
		if len(p.holds) < 20 {
			p.trace("  member holds %s@%d %s", b, p.holds[b].Generation, p.holds[b].Content)
		}
	}
	for _, b := range slices.Sorted(maps.Keys(p.rows)) {
		if s := p.rows[b].status; s != nil && len(p.rows) < 20 {
			p.trace("  row %s@%d status %s@%d seq=%d", b, p.rows[b].spec.Generation, s.State, s.Generation, s.Seq)
		}
	}
	p.trace("  unclaimed %v ahead %v refused %v unacknowledged %d", p.unclaimed, p.ahead, p.refused, p.agent.CountUnacknowledged())
	p.trace("  %d frames, under %d bytes", p.frames, (p.bytes/1000+1)*1000)
}

func (p *scriptPlayer) parseNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatalf("%q is no number", s)
	}
	return n
}
