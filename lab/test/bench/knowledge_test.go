package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// knowledgeBytes is what an agent may hold in its heap of what is built in about kinds, with
// the languages in which users say more.
const knowledgeBytes = 3 << 20

var (
	initPattern       = regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs`)
	knowledgePackages = regexp.MustCompile(`^atoll\.dev/atoll/internal/(kinds|expr)|gopher-lua|cel-go|^cel\.dev/expr|api/expr/v1alpha1$|antlr`)
)

// TestAnAgentsHoldingsOfKinds counts by the runtime's own trace of what packages allocate
// before main, of the binary that agents run.
func TestAnAgentsHoldingsOfKinds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(binDir(t), "atoll"), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	total, own := 0, false
	for _, m := range initPattern.FindAllSubmatch(out, -1) {
		if !knowledgePackages.Match(m[1]) {
			continue
		}
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		own = own || string(m[1]) == "atoll.dev/atoll/internal/kinds"
		total += n
	}
	if !own {
		t.Fatalf("the trace does not name what is asked for:\n%s", out)
	}
	t.Logf("%d bytes", total)
	if total > knowledgeBytes {
		t.Errorf("%d bytes, at most %d", total, knowledgeBytes)
	}
}
