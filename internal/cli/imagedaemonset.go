package cli

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

//go:embed imagedaemonset.yaml.tmpl
var daemonSetText string

const (
	// imagesPerSet is how many images one DaemonSet has at most.
	imagesPerSet = 100
	// maxTaskLabel is how much of a task's name is in the names of its DaemonSets, which are values of labels.
	maxTaskLabel = 40
)

// checkDaemonSet rejects flags with which no DaemonSet can be printed.
func (a *commandLine) checkDaemonSet() error {
	if a.provider != kubernetesName {
		return usageError("--print-daemonset is for the kubernetes provider: add --provider kubernetes")
	}
	opts, err := a.clusterOptions()
	if err != nil {
		return err
	}
	if opts.GuestImage == "" {
		return usageError("--print-daemonset needs --guest-image: push one with 'fumehood image guest --push REF'")
	}
	if _, err := reference.ParseNormalizedNamed(opts.GuestImage); err != nil {
		return usageError("--guest-image %q: %w", opts.GuestImage, err)
	}
	if bad := validation.IsDNS1123Label(opts.Namespace); opts.Namespace != "" && len(bad) > 0 {
		return usageError("--namespace %q is not the name of a namespace: %s", opts.Namespace, bad[0])
	}
	for flag, names := range map[string][]string{"pull-secrets": opts.PullSecrets, "runtime": {opts.RuntimeClass}} {
		for _, value := range names {
			if bad := validation.IsDNS1123Subdomain(value); value != "" && len(bad) > 0 {
				return usageError("--%s %q is not the name of an object: %s", flag, value, bad[0])
			}
		}
	}
	return nil
}

// printDaemonSets prints the DaemonSets that fetch the images of a task. It prints none if one of the images has an error.
func (a *commandLine) printDaemonSets(ctx context.Context, p provider.ImagePlanner, f *taskfile.File, maxBytes int64) error {
	plan, err := app.PlanImages(ctx, p, f, maxBytes > 0)
	if err != nil {
		return err
	}
	chosen, left := plan.Choose(maxBytes)
	var images []string
	for _, i := range chosen {
		if i.Platform != "" {
			i.Err = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("nodes pull images for their own platform, not %s", i.Platform)}
		} else if _, err := reference.ParseNormalizedNamed(i.Ref); err != nil {
			i.Err = &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
		}
		images = append(images, i.Ref)
	}
	if err := plan.Failures("print a DaemonSet"); err != nil {
		return err
	}
	for _, i := range left {
		a.tell("%s: left, because of --max-bytes", describeRef(i))
	}
	for _, i := range plan.Images {
		if i.Kind == provider.NeededLocal {
			a.tell("%s: not pulled, each node must have it", describeRef(i))
		}
	}
	if len(images) == 0 {
		a.tell("no images to fetch, so there is no DaemonSet")
		return nil
	}
	opts, err := a.clusterOptions()
	if err != nil {
		return err
	}
	text, err := renderDaemonSets(opts, f.Name, images)
	if err != nil {
		return err
	}
	return a.say("%s", text)
}

// daemonSet is one DaemonSet of imagedaemonset.yaml.tmpl.
type daemonSet struct {
	Name   string
	Images []string
}

// renderDaemonSets returns the DaemonSets that fetch the images of a task as YAML, in documents with "---" between them.
func renderDaemonSets(opts kubernetes.Options, task string, images []string) (string, error) {
	task = taskLabel(task)
	var sets []daemonSet
	for first := 0; first < len(images); first += imagesPerSet {
		sets = append(sets, daemonSet{fmt.Sprintf("fumehood-images-%s-%d", task, len(sets)+1), images[first:min(first+imagesPerSet, len(images))]})
	}
	var text strings.Builder
	err := yamlTemplate(daemonSetText).Execute(&text, map[string]any{
		"Sets": sets, "Task": task, "Namespace": opts.Namespace, "GuestImage": opts.GuestImage, "PullSecrets": opts.PullSecrets,
		"RuntimeClass": opts.RuntimeClass, "UserNamespaces": opts.UserNamespaces,
	})
	return text.String(), err
}

// taskLabel returns a task's name as a part of an object's name.
func taskLabel(task string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(task))
	label = strings.Trim(label[:min(len(label), maxTaskLabel)], "-")
	if label == "" {
		return "task"
	}
	return label
}

// yamlTemplate parses a template of YAML. Its function quote quotes a string.
func yamlTemplate(text string) *template.Template {
	// A string of JSON is one of YAML, whatever it has in it.
	return template.Must(template.New("").Funcs(template.FuncMap{"quote": func(s string) (string, error) {
		b, err := json.Marshal(s)
		return string(b), err
	}}).Parse(text))
}
