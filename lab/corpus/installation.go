package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/lab"
)

const (
	ownMembers  = 2
	controlName = "control"
	endLimit    = 30 * time.Second
)

// installation is a hub with members, and the control beside it.
type installation struct {
	hub, control *cluster
	members      []*cluster
	end          func(ctx context.Context) error
}

// allClusters lists all clusters, the hub first and the control last.
func (i *installation) allClusters() []*cluster {
	return slices.Concat([]*cluster{i.hub}, i.members, []*cluster{i.control})
}

// startInstallation brings up the control, and a lab of its own where dir is empty. end takes down what
// it brought up.
func startInstallation(ctx context.Context, dir string, progress io.Writer) (*installation, error) {
	own := dir == ""
	if own {
		temporary, err := os.MkdirTemp("", "atoll-corpus-")
		if err != nil {
			return nil, err
		}
		dir = temporary
	}
	i := &installation{end: func(ctx context.Context) error { return endLabs(ctx, dir, own) }}
	err := i.bringUp(ctx, dir, own, progress)
	if err != nil {
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		return nil, errors.Join(err, i.end(endCtx))
	}
	return i, nil
}

// labDirs returns the directories of the lab and of the control.
func labDirs(dir string, own bool) (fleet, control string) {
	if own {
		return filepath.Join(dir, "lab"), filepath.Join(dir, controlName)
	}
	return dir, filepath.Join(dir, "corpus-"+controlName)
}

func (i *installation) bringUp(ctx context.Context, dir string, own bool, progress io.Writer) error {
	fleetDir, controlDir := labDirs(dir, own)
	if !own {
		if _, err := lab.OpenExisting(fleetDir); err != nil {
			return err
		}
	}
	var fleet, control *lab.Lab
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		control, err = lab.BringUp(groupCtx, lab.Options{Dir: controlDir, Members: 1, Hubless: true, Progress: progress, EndsWithStarter: true})
		return err
	})
	group.Go(func() (err error) {
		if !own {
			fleet, err = lab.OpenExisting(fleetDir)
			return err
		}
		fleet, err = lab.BringUp(groupCtx, lab.Options{
			Dir: fleetDir, Members: ownMembers, HubArgs: []string{"--default-placement=All"}, Progress: progress, EndsWithStarter: true,
		})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return i.connectClusters(ctx, fleet, control)
}

func (i *installation) connectClusters(ctx context.Context, fleet, control *lab.Lab) (err error) {
	status, err := fleet.ReadStatus(ctx)
	if err != nil {
		return err
	}
	for _, c := range status.Components {
		isMember := strings.HasPrefix(c.Name, "member")
		if !isMember && c.Name != hubName {
			continue
		}
		if !c.Ready {
			return fmt.Errorf("%s of the lab does not work: %s; see: atoll-lab status --dir %s", c.Name, c.Waiting, fleet.Dir())
		}
		opened, err := newCluster(c.Name, fleet.KubeconfigPath(c.Name))
		if err != nil {
			return err
		}
		if isMember {
			i.members = append(i.members, opened)
		} else {
			i.hub = opened
		}
	}
	if i.hub == nil || len(i.members) == 0 {
		return fmt.Errorf("the lab in %s has no hub with members", fleet.Dir())
	}
	if i.control, err = newCluster(controlName, control.KubeconfigPath("member1")); err != nil {
		return err
	}
	return requireDefaultPlacementAll(ctx, i.hub)
}

// requireDefaultPlacementAll refuses a hub that does not place every object in every member.
func requireDefaultPlacementAll(ctx context.Context, hub *cluster) error {
	config, err := clientcmd.BuildConfigFromFlags("", hub.kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "hubsettings"}
	object, err := client.Resource(resource).Get(ctx, v1alpha1.HubSettingsName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the hub's settings: %w", err)
	}
	var settings v1alpha1.HubSettings
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &settings); err != nil {
		return fmt.Errorf("the hub's settings: %w", err)
	}
	if d := settings.Spec.DefaultPlacement; d == nil || d.Type != v1alpha1.DefaultPlacementAll {
		return errors.New(`the hub places nothing by default, so that no manifest could be the same; change it with: kubectl patch hubsettings hub --type=merge -p '{"spec":{"defaultPlacement":{"type":"All"}}}'`)
	}
	return nil
}

// endLabs takes down the labs that a run brought up, and removes their directories.
func endLabs(ctx context.Context, dir string, own bool) error {
	fleet, control := labDirs(dir, own)
	var errs []error
	dirs := []string{control}
	if own {
		dirs = append(dirs, fleet)
	}
	for _, d := range dirs {
		if l, err := lab.OpenExisting(d); err == nil {
			errs = append(errs, l.Delete(ctx))
		}
	}
	if own {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
