package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"atoll.dev/atoll/lab"
)

// withTemporaryDir measures with a temporary directory, and deletes it.
func withTemporaryDir(measure func(dir string) ([]benchNumber, error)) (numbers []benchNumber, err error) {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return measure(dir)
}

// withLab brings up a lab in o.Dir, measures, and deletes the lab.
func withLab(ctx context.Context, o lab.Options, measure func(*lab.Lab) ([]benchNumber, error)) (numbers []benchNumber, err error) {
	l, err := lab.BringUp(ctx, o)
	defer func() {
		if opened, openErr := lab.OpenExisting(o.Dir); openErr == nil {
			err = errors.Join(err, opened.Delete(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return nil, err
	}
	return measure(l)
}

// withThreeMembers measures in a lab with three members below dir.
func withThreeMembers(ctx context.Context, dir string, progress io.Writer, measure func(context.Context, *labBench) ([]benchNumber, error)) ([]benchNumber, error) {
	fmt.Fprintln(progress, "a hub and three members")
	o := lab.Options{Dir: filepath.Join(dir, "lab"), Members: len(memberNames), Nodes: 3, Progress: progress}
	return withLab(ctx, o, func(l *lab.Lab) ([]benchNumber, error) {
		b, err := prepareLabBench(ctx, l)
		if err != nil {
			return nil, err
		}
		return measure(ctx, b)
	})
}
