package attack

import (
	"os"
	"testing"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/attack/hostilehub"
)

// The built agent lives in the memory of its chart under each attack of a hostile hub, and under all at once.
func TestTheAgentHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member and its agent")
	}
	if os.Getenv(lab.BinDirVariable) == "" {
		t.Fatalf("this test runs built binaries: `make build`, then %s=$PWD/bin go test -C lab ./test/attack", lab.BinDirVariable)
	}
	if err := hostilehub.CheckMemoryGroups(); err != nil {
		t.Skipf("the agent cannot get its memory limit here: %v", err)
	}
	l, err := lab.BringUp(t.Context(), lab.Options{Dir: t.TempDir(), Members: 1, Hubless: true, EndsWithStarter: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := hostilehub.OpenMember(l)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range hostilehub.Attacks {
		reportAgentResult(t, hostilehub.RunAttack(t.Context(), m, a.Name, hostilehub.Attacks[i:i+1], time.Second))
	}
	reportAgentResult(t, hostilehub.RunAttack(t.Context(), m, "together", hostilehub.TogetherAttacks(), togetherFor*time.Second))
}

// reportAgentResult fails the test if the agent did not hold.
func reportAgentResult(t *testing.T, r hostilehub.Result) {
	t.Helper()
	if t.Log(r); r.Broken != nil {
		t.Errorf("the agent did not hold against %s", r.Name)
	}
}
