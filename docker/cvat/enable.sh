# Adds the TFRecord formats to the CVAT of this container. Sourced by CVAT's entry point, from
# /etc/cvat/init.d, before it starts anything; that runs bash under `set -eu`.
#
# CVAT must start whatever is wrong with tfod: then no variable changes, and a line says why.

tfod_enable() {
    local package base path reason
    # Where the link `current` leads now: modules that are loaded later must be of one version with
    # the first, though a newer one is installed meanwhile.
    package=$(readlink -f "${BASH_SOURCE[0]}") || return 0
    package=${package%/*}
    path=$package${PYTHONPATH:+:$PYTHONPATH}
    # Settings that somebody chose, for LDAP say, stay: ours add the app to them.
    base=${TFOD_CVAT_BASE_SETTINGS:-${DJANGO_SETTINGS_MODULE:-}}
    case $base in
    "" | tfod.cvat.django_settings) base=cvat.settings.production ;;
    esac

    if reason=$(
        PYTHONPATH=$path TFOD_CVAT_BASE_SETTINGS=$base \
            python3 -c 'import tfod.cvat.django_settings, tfod.cvat.apps' 2>&1 >/dev/null
    ); then
        export PYTHONPATH=$path TFOD_CVAT_BASE_SETTINGS=$base
        export DJANGO_SETTINGS_MODULE=tfod.cvat.django_settings
        echo "tfod: TFRecord formats of $package, with the settings $base"
    else
        echo >&2 "tfod: no TFRecord formats: ${reason##*$'\n'}"
    fi
}

tfod_enable
unset -f tfod_enable
