package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/apiserver"
)

// hub is the server that the tests of this package share; each keeps to
// namespaces and names of its own.
var hub *apiserver.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "atoll-apiserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	hub, err = apiserver.Start(context.Background(), options(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("ready after %v\n", time.Since(begin).Round(time.Millisecond))
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := hub.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		return 1
	}
	return code
}

func options(dir string) apiserver.Options {
	return apiserver.Options{
		DataDir: dir,
		Version: "v0.1.0",
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: logLevel()})),
	}
}

func logLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv("LOG_LEVEL"))); err != nil {
		return slog.LevelError + 1
	}
	return level
}

func adminConfig(t *testing.T, s *apiserver.Server) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.AdminKubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

func TestReady(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(adminConfig(t, hub))
	list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(list.Items))
}
