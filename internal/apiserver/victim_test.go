package apiserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/datadir"
)

// victimEnv makes this test binary a hub that writes until it is killed.
const victimEnv = "ATOLL_TEST_VICTIM_DIR"

// beVictim serves from dir and says each name whose write was acknowledged.
func beVictim(dir string) {
	s, err := apiserver.StartAPIServer(context.Background(), testOptions(dir))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	client := kubernetes.NewForConfigOrDie(s.LoopbackConfig())
	for i := 0; ; i++ {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("write-", i)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(cm.Name)
	}
}

func TestKilledHubKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+dir)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && len(acknowledged) < 100 {
		if strings.HasPrefix(lines.Text(), "error:") {
			t.Fatal(lines.Text())
		}
		acknowledged = append(acknowledged, lines.Text())
	}
	var inUse *datadir.InUseError
	if _, err := tryStart(t, testOptions(dir)); !errors.As(err, &inUse) || inUse.PID != victim.Process.Pid {
		t.Errorf("a second hub in the same directory: %v", err)
	} else if !strings.Contains(err.Error(), dir) {
		t.Errorf("the error does not name the directory: %v", err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	victim.Wait()

	u := newAdmin(t, start(t, testOptions(dir)))
	for _, name := range acknowledged {
		if _, err := u.kube.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatalf("an acknowledged write is lost: %v", err)
		}
	}
}
