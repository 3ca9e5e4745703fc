package exec

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

	"atoll.dev/atoll/internal/atoll"
)

func newPod(name, cluster string, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "." + cluster, Labels: map[string]string{atoll.LabelCluster: cluster}}}
	if ready {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestPodsAreChosen(t *testing.T) {
	all := []corev1.Pod{newPod("a", "oslo", false), newPod("b", "oslo", true), newPod("c", "oslo", true), newPod("d", "rome", false), newPod("e", "tokyo", true)}
	if got, err := chooseReadyPod(all, "deployment/web"); err != nil || got.Name != "b.oslo" {
		t.Errorf("chosen is %v, %v", got, err)
	}
	if got, err := chooseReadyPod(all[:1], "pod/a.oslo"); err != nil || got.Name != "a.oslo" {
		t.Errorf("the only one is not chosen: %v, %v", got, err)
	}
	going := []corev1.Pod{newPod("a", "oslo", true), newPod("d", "rome", false)}
	going[0].DeletionTimestamp = &metav1.Time{}
	if got, err := chooseReadyPod(going, "deployment/web"); err == nil || !strings.Contains(err.Error(), "none of the 2 pods of deployment/web is ready") {
		t.Errorf("chosen is %v, %v", got, err)
	}
	chosen, without := chooseReadyPodPerCluster(all)
	var names []string
	for _, p := range chosen {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " ") + " without " + strings.Join(without, " "); got != "b.oslo e.tokyo without rome" {
		t.Errorf("of each cluster are chosen %s", got)
	}
}

func TestArgumentsAreSplit(t *testing.T) {
	for _, c := range []struct {
		dash int
		args []string
		want string
	}{
		{1, []string{"deploy/web", "ls", "-l"}, "deploy/web: ls -l"},
		{0, []string{"date"}, ": date"},
		{-1, []string{"web", "ls"}, "write the command behind --"},
		{1, []string{"web"}, "there is no command"},
		{2, []string{"a", "b", "ls"}, "name one workload"},
	} {
		argument, command, err := splitArguments(c.dash, c.args)
		got := argument + ": " + strings.Join(command, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %q, wanted %q", c.args, got, c.want)
		}
	}
}

func TestHowItEndedEverywhere(t *testing.T) {
	a, b, c := newPod("a", "oslo", true), newPod("b", "rome", true), newPod("c", "tokyo", true)
	ends := []commandResult{
		newCommandResult(&a, nil), newCommandResult(&b, utilexec.CodeExitError{Err: errors.New("exit"), Code: 3}), newCommandResult(&c, errors.New("cluster tokyo cannot be reached")),
		{cluster: "york", err: errors.New("no pod is ready")},
	}
	var out strings.Builder
	err := printCommandResults(&out, ends)
	if err == nil || err.Error() != "in 3 of 4 clusters it did not end well" {
		t.Errorf("the error is %v", err)
	}
	want := `
CLUSTER   POD   EXIT   REASON
oslo      a     0      -
rome      b     3      -
tokyo     c     -      cluster tokyo cannot be reached
york      -     -      no pod is ready
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwanted\n%s", out.String(), want)
	}
	if err := printCommandResults(&out, ends[:1]); err != nil {
		t.Errorf("what ended well is an error: %v", err)
	}
}
