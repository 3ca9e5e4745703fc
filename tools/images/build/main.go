// Command build writes an OCI image layout for each program of Atoll that runs in clusters, of
// binaries that it builds for each platform. `make images` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"atoll.dev/atoll/tools/images"
)

type buildOptions struct {
	root, out, ldflags, platforms, binaries string
	about                                   images.BuildInfo
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o buildOptions
	flag.StringVar(&o.root, "root", "..", "directory of the source")
	flag.StringVar(&o.out, "out", "../bin/images", "directory for the layouts, one for each image")
	flag.StringVar(&o.ldflags, "ldflags", "-s -w", "flags for the linker")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "platforms, by commas")
	flag.StringVar(&o.binaries, "binaries", "", "directory of programs that are built already, for the one platform; default: they are built")
	flag.StringVar(&o.about.Version, "version", "", "version and tag (required)")
	flag.StringVar(&o.about.Revision, "revision", "", "revision of the source")
	seconds := flag.String("time", "0", "time of the source, in Unix seconds")
	flag.Parse()
	if err := buildImages(ctx, o, *seconds); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func buildImages(ctx context.Context, o buildOptions, seconds string) error {
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || o.about.Version == "" {
		return fmt.Errorf("--version is needed, and --time a number of seconds: %w", err)
	}
	o.about.Time = time.Unix(at, 0).UTC()
	if o.binaries != "" && strings.Contains(o.platforms, ",") {
		return fmt.Errorf("the programs in %s are for one platform, and --platforms names %s", o.binaries, o.platforms)
	}
	dir, err := os.MkdirTemp("", "atoll-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, p := range images.Programs {
		var built []v1.Image
		for name := range strings.SplitSeq(o.platforms, ",") {
			platform, err := v1.ParsePlatform(name)
			if err != nil {
				return err
			}
			binary, err := o.compileProgram(ctx, p, platform, dir)
			if err != nil {
				return err
			}
			img, err := images.NewImage(p, *platform, binary, o.about)
			if err != nil {
				return err
			}
			built = append(built, img)
		}
		at := filepath.Join(o.out, p.Name)
		if err := images.WriteImageLayout(at, o.about, built); err != nil {
			return err
		}
		fmt.Printf("%s: %s for %s\n", at, o.about.Version, o.platforms)
	}
	return nil
}

// compileProgram compiles a program for a platform, without cgo and without paths of this
// machine, unless it is built already.
func (o buildOptions) compileProgram(ctx context.Context, p images.Program, on *v1.Platform, dir string) ([]byte, error) {
	if o.binaries != "" {
		return os.ReadFile(filepath.Join(o.binaries, p.Name))
	}
	out := filepath.Join(dir, p.Name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", p.Tags, "-ldflags", o.ldflags, "-o", out, "./cmd/"+p.Name)
	cmd.Dir, cmd.Stderr = o.root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.OS, "GOARCH="+on.Architecture)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build %s for %s: %w", p.Name, on, err)
	}
	return os.ReadFile(out)
}
