// node typescript.mjs HOW URL SCENE: a page without a browser; with the scene "reduce", what is given is reduced.

import * as lib from "@streamtools/client";
import { readStdin, tell } from "./telling.mjs";
import { makeScenes, reduceAll } from "./typescript_scenes.mjs";

const [, , how, url, scene] = process.argv;
const given = await readStdin();
tell("end", scene === "reduce" ? reduceAll(lib, given) : await makeScenes(lib, how, url)(scene));
